"""What the last batches of a query say about its health; pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby, pairwise
from operator import attrgetter

from headrace.errors import Finding, Where
from headrace.progress.record import BatchRecord

ENOUGH = 5
"""Fewer batches with data than this are no ground for a judgement: the first ones pay for compilation."""

MARGIN = 1.1
"""Batches that follow each other at once differ in their two rates by the clock's noise alone."""

GROWTH = 1.5
"""State that grows with every batch, and by this factor over those looked at, is called out."""

LATE_SHARE, LATE_GROWTH = 0.01, 2.0
"""One row in a hundred, and twice as many as before, are called out."""


def health(
    records: Iterable[BatchRecord], *, watermarked: Collection[str] = (), state_budget_bytes: int | None = None
) -> Iterator[Finding]:
    """Findings about each query among `records`, which lie in the order of time.

    watermarked: the sources that have a watermark, of which the slowest decides; unknown to the records.
    state_budget_bytes: the memory that its state may take.
    """
    by_query = sorted(records, key=attrgetter("query"))
    for query, own in groupby(by_query, key=attrgetter("query")):
        batches = list(own)
        busy = [record for record in batches if record.rows > 0][-ENOUGH:]
        if len(busy) == ENOUGH:
            yield from _falling_behind(query, busy)
            yield from _piling_up(query, busy)
            yield from _held_back(query, busy, watermarked)
        yield from _standing(query, [record for record in batches if record.rows > 0][-2 * ENOUGH :])
        yield from _over_budget(query, batches, state_budget_bytes)
        yield from _rising(query, batches[-2 * ENOUGH :])
        yield from _growing(query, batches[-2 * ENOUGH :])
        yield from _dropping(query, batches[-2 * ENOUGH :])


def _falling_behind(query: str, busy: list[BatchRecord]) -> Iterator[Finding]:
    rows = sum(record.rows for record in busy)
    seconds = sum(record.duration_ms for record in busy) / 1000
    processed = rows / seconds if seconds else float("inf")
    # A batch that follows at once took all that had arrived: over several, what arrives is their mean.
    arriving = sum(record.input_rate for record in busy) / len(busy)
    if processed * MARGIN < arriving:
        yield Finding(
            code="HR680",
            where=Where(file=f"query '{query}'"),
            what=f"it works off {processed:,.0f} rows a second while {arriving:,.0f} arrive, so it falls behind",
            fix="give it more cores, bound a batch by the source's rate limit, or look at the slowest part of a batch: "
            + _slowest(busy),
        )


def _piling_up(query: str, busy: list[BatchRecord]) -> Iterator[Finding]:
    """With a rate limit on its source a query that falls behind shows it in the lag alone."""
    waiting = [record.backlog for record in busy if record.backlog is not None]
    if len(waiting) == ENOUGH and all(a.count < b.count for a, b in pairwise(waiting)):
        yield Finding(
            code="HR683",
            where=Where(file=f"query '{query}'"),
            what=f"its lag grew with each of the last {ENOUGH} batches, "
            f"from {waiting[0].count:,} to {waiting[-1].count:,} {waiting[-1].unit}",
            fix="raise the source's rate limit or give the query more cores; the slowest part of a batch is "
            + _slowest(busy),
        )


def _held_back(query: str, busy: list[BatchRecord], watermarked: Collection[str]) -> Iterator[Finding]:
    """One watermarked input gives rows, another gives none, and the watermark, which is the least of both, stands."""
    if len({record.watermark for record in busy}) > 1:
        return
    rows = dict.fromkeys(watermarked, 0)
    for record in busy:
        for source in record.sources:
            if source.name in rows:
                rows[source.name] += source.rows
    idle = [name for name, count in rows.items() if count == 0]
    if not idle or len(idle) == len(rows):
        return
    since = busy[0].watermark
    stands = f"stands at {since:%Y-%m-%d %H:%M:%S} UTC" if since else "has not begun to move"
    yield Finding(
        code="HR684",
        where=Where(file=f"query '{query}'"),
        what=f"its watermark {stands}, held back by {_named(idle)}: no row came from there in {ENOUGH} batches, "
        + " and ".join(f"{count:,} from '{name}'" for name, count in rows.items() if count),
        fix=f"see why {_named(idle)} gives nothing; rows of outer joins without a match, and windows in append mode, "
        "come out when it gives later events",
    )


def _standing(query: str, busy: list[BatchRecord]) -> Iterator[Finding]:
    """Rows come, and none of them is newer than those before, so that the watermark stands."""
    newest = [record.event_max for record in busy if record.event_max is not None]
    if len(newest) < 2 * ENOUGH or len({record.watermark for record in busy}) > 1 or max(newest) > newest[0]:
        return
    since = busy[0].watermark
    if since is None:
        return
    gave: dict[str, int] = {}
    for record in busy:
        for source in record.sources:
            gave[source.name] = gave.get(source.name, 0) + source.rows
    yield Finding(
        code="HR883",
        where=Where(file=f"query '{query}'"),
        what=f"its watermark stands at {since:%Y-%m-%d %H:%M:%S} UTC although rows come: none of the last {len(busy)} "
        f"batches, with {' and '.join(f'{rows:,} from {name!r}' for name, rows in gave.items() if rows)}, had a newer "
        f"event time than {newest[0]:%Y-%m-%d %H:%M:%S} UTC",
        fix=f"see which times the newest rows have; headrace inspect watermark {query} shows how it moved",
    )


def _over_budget(query: str, batches: list[BatchRecord], budget: int | None) -> Iterator[Finding]:
    size = batches[-1].state_bytes
    if budget is not None and size is not None and size > budget:
        largest = max(batches[-1].operators, key=lambda operator: operator.bytes, default=None)
        most = f", most of it in {largest.name}" if largest is not None and len(batches[-1].operators) > 1 else ""
        yield Finding(
            code="HR884",
            where=Where(file=f"query '{query}'"),
            what=f"its state takes {size:,} bytes of memory{most}; its budget is {budget:,}",
            fix="shorten the watermark's delay or the windows, give the query fewer keys, or raise state_budget",
        )


def _rising(query: str, batches: list[BatchRecord]) -> Iterator[Finding]:
    """Late rows are usual; that ever more come is not."""
    if len(batches) < 2 * ENOUGH:
        return
    before, now = (_late_share(part) for part in (batches[:ENOUGH], batches[ENOUGH:]))
    if now > max(LATE_SHARE, LATE_GROWTH * before):
        yield Finding(
            code="HR885",
            where=Where(file=f"query '{query}'"),
            what=f"late rows are rising: of 1,000 rows {now * 1000:,.0f} were dropped in the last {ENOUGH} batches, "
            f"and {before * 1000:,.0f} in those before",
            fix=f"see where they come from: headrace late {query}; a sender may be behind, or its clock wrong",
        )


def _late_share(batches: list[BatchRecord]) -> float:
    rows = sum(record.rows for record in batches)
    return sum(record.dropped_by_watermark for record in batches) / rows if rows else 0.0


def _named(names: list[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)


def _slowest(busy: list[BatchRecord]) -> str:
    parts: dict[str, int] = {}
    for record in busy:
        for part, duration in record.durations.items():
            if part != "triggerExecution":
                parts[part] = parts.get(part, 0) + duration
    if not parts:
        return "unknown"
    part, duration = max(parts.items(), key=lambda item: item[1])
    return f"{part} ({duration / len(busy):,.0f} ms)"


def _growing(query: str, batches: list[BatchRecord]) -> Iterator[Finding]:
    sizes = [record.state_rows for record in batches if record.state_rows is not None]
    if len(sizes) < 2 * ENOUGH or sizes[0] == 0:
        return
    if all(a < b for a, b in pairwise(sizes)) and sizes[-1] >= GROWTH * sizes[0]:
        yield Finding(
            code="HR681",
            where=Where(file=f"query '{query}'"),
            what=f"its state grew with each of the last {len(sizes)} batches, from {sizes[0]:,} to {sizes[-1]:,} rows",
            fix="if keys are not bounded, declare a watermark and group by a window or drop duplicates within it",
        )


def _dropping(query: str, batches: list[BatchRecord]) -> Iterator[Finding]:
    dropped = sum(record.dropped_by_watermark for record in batches)
    if dropped:
        yield Finding(
            code="HR682",
            where=Where(file=f"query '{query}'"),
            what=f"rows were dropped as later than the watermark: Spark counted {dropped:,} in the last "
            f"{len(batches)} batches, after partial aggregation, so there may be more",
            fix=f"see them with `headrace late {query}`, or declare a longer delay",
        )
