"""What the last batches of a query, or their silence, say about its health; pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from operator import attrgetter
from statistics import median

from headrace.contract.batch_record import BatchRecord
from headrace.errors import OF_THE_CATALOGUE, Finding, Where
from headrace.findings import Severity
from headrace.units import utc

ENOUGH = 5
"""Fewer batches with data than this are no ground for a judgement: the first ones pay for compilation."""

MARGIN = 1.5
"""The two rates of batches that follow each other at once differ by the machine's noise alone, more on a loaded one."""

GROWTH = 1.5
"""State that grows with every batch, and by this factor over those looked at, is called out; so is a lag."""

BATCHES_BEHIND = 10
"""What waits in a query that keeps up is taken by the next batch or the one after it."""

LATE_SHARE, LATE_GROWTH = 0.01, 2.0
"""One row in a hundred, and twice as many as before, are called out."""


def health(
    records: Iterable[BatchRecord], *, watermarked: Collection[str] = (), state_budget_bytes: int | None = None
) -> Iterator[Finding]:
    """Yield findings about each query among `records`, which are in the order of time.

    watermarked: the sources that have a watermark, of which the slowest decides; unknown to the records.
    state_budget_bytes: the memory that its state may take.
    """
    by_query = sorted(records, key=attrgetter("query"))
    for query, own in groupby(by_query, key=attrgetter("query")):
        batches = list(own)
        busy = [record for record in batches if record.rows > 0][-2 * ENOUGH :]
        if len(busy) == 2 * ENOUGH:
            yield from _find_slow_batches(query, busy)
            yield from _find_growing_lag(query, busy)
        if len(busy) >= ENOUGH:
            yield from _find_held_watermark(query, busy[-ENOUGH:], watermarked)
        yield from _find_stuck_watermark(query, busy)
        yield from find_wrong_times(batches)
        yield from _find_large_state(query, batches, state_budget_bytes)
        yield from _find_rising_lateness(query, batches[-2 * ENOUGH :])
        yield from _find_growing_state(query, batches[-2 * ENOUGH :])
        yield from _find_late_rows(query, batches[-2 * ENOUGH :])


def _find_slow_batches(query: str, busy: list[BatchRecord]) -> Iterator[Finding]:
    # The middle one of the rates: one batch that was held up by its machine makes both of its neighbours' rates odd.
    processed = median(1000 * record.rows / max(1, record.duration_ms) for record in busy)
    arriving = median(record.input_rate for record in busy)
    waiting = [record.backlog.count for record in busy if record.backlog is not None]
    # What is read fast of what has piled up did not arrive: then less and less waits.
    if processed * MARGIN < arriving and (len(waiting) < len(busy) or waiting[-1] > waiting[0]):
        yield _of_query(
            query,
            "HR680",
            what=f"it processes {processed:,.0f} rows a second while {arriving:,.0f} arrive, so it falls behind",
            fix="give it more cores, bound a batch by the source's rate limit, or look at the slowest part of a batch: "
            + _slowest(busy),
        )


def _find_growing_lag(query: str, busy: list[BatchRecord]) -> Iterator[Finding]:
    """With a rate limit on its source a query that falls behind shows it in the lag alone."""
    waiting = [record.backlog for record in busy if record.backlog is not None]
    if len(waiting) < len(busy):
        return
    before, now = ([lag.count for lag in part] for part in (waiting[:ENOUGH], waiting[ENOUGH:]))
    usual = median(record.duration_ms for record in busy) / 1000
    ended = busy[-1].at.timestamp() + busy[-1].duration_ms / 1000
    # Files that land while a batch runs wait for the next one, and are no sign of anything.
    age = waiting[-1].waiting_seconds(ended)
    if min(now) > GROWTH * max(before) and (age is None or age > BATCHES_BEHIND * usual):
        yield _of_query(
            query,
            "HR680",
            what=f"its lag grew over the last {len(busy)} batches, "
            f"from {waiting[0].count:,} to {waiting[-1].count:,} {waiting[-1].unit}",
            fix="raise the source's rate limit or give the query more cores; the slowest part of a batch is "
            + _slowest(busy),
        )


def _find_held_watermark(query: str, busy: list[BatchRecord], watermarked: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if one watermarked input gives rows, another none, and the lesser watermark holds both back."""
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
    yield _of_query(
        query,
        "HR684",
        what=f"its watermark {stands}, held back by {_quote_names(idle)}: no row came from there in {ENOUGH} batches, "
        + " and ".join(f"{count:,} from '{name}'" for name, count in rows.items() if count),
        fix=f"see why {_quote_names(idle)} gives nothing; rows of outer joins without a match, and windows in append "
        "mode, come out when it gives later events",
    )


NULL_TIMES = "HR685"


def find_wrong_times(batches: Sequence[BatchRecord]) -> Iterator[Finding]:
    """Yield what is wrong with the event times of the last batches: some are NULL, or the watermark is in the future.

    Rows without a time are reported while they come, with how many have come in all.
    """
    record = batches[-1]
    come = any(source.null_times for batch in batches for source in batch.sources)
    counts = [f"{source.null_times_total:,} of '{source.name}'" for source in record.sources if source.null_times_total]
    if come and counts:
        yield _of_query(
            record.query,
            NULL_TIMES,
            what=f"rows have no event time (NULL): {', '.join(counts)}; no window takes them, an outer join gives no "
            "row for them, and a deduplication within the watermark may give them twice",
            fix="give such rows a time where they come from, or filter them out in the query",
        )
    leap = record.leap
    if leap is not None:
        moved, before = "", "see which batch moved it: headrace inspect watermark " + record.query
        if leap.batch is not None and leap.time_ms is not None:
            place = f" ({leap.place})" if leap.place else ""
            moved = f", moved by a row of source '{leap.source}' in batch {leap.batch}{place}, of {utc(leap.time_ms)}"
            back = f"return to the batch before: headrace rewind {record.query} --to-batch {leap.batch - 1}"
            again = f"begin again: headrace reset {record.query}"
            before = f"correct or remove the row where it comes from, and {back if leap.batch else again}"
        yield _of_query(
            record.query,
            "HR686",
            what=f"its watermark is in the future, at {utc(leap.watermark_ms)}{moved}; rows with earlier event times "
            "are late",
            fix=f"{before}; or put the watermark on in the query, behind a filter of such times, and rebuild it",
        )


def _find_stuck_watermark(query: str, busy: list[BatchRecord]) -> Iterator[Finding]:
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
    yield _of_query(
        query,
        "HR883",
        what=f"its watermark stands at {since:%Y-%m-%d %H:%M:%S} UTC although rows come: none of the last {len(busy)} "
        f"batches, with {' and '.join(f'{rows:,} from {name!r}' for name, rows in gave.items() if rows)}, had a newer "
        f"event time than {newest[0]:%Y-%m-%d %H:%M:%S} UTC",
        fix=f"see which times the newest rows have; headrace inspect watermark {query} shows how it moved",
    )


def _find_large_state(query: str, batches: list[BatchRecord], budget: int | None) -> Iterator[Finding]:
    size = batches[-1].state_bytes
    if budget is not None and size is not None and size > budget:
        largest = max(batches[-1].operators, key=lambda operator: operator.bytes, default=None)
        most = f", most of it in {largest.name}" if largest is not None and len(batches[-1].operators) > 1 else ""
        yield _of_query(
            query,
            "HR884",
            what=f"its state takes {size:,} bytes of memory{most}; its budget is {budget:,}",
            fix="shorten the watermark's delay or the windows, give the query fewer keys, or raise state_budget",
        )


def _find_rising_lateness(query: str, batches: list[BatchRecord]) -> Iterator[Finding]:
    """Late rows are usual; that ever more come is not."""
    if len(batches) < 2 * ENOUGH:
        return
    before, now = (_late_share(part) for part in (batches[:ENOUGH], batches[ENOUGH:]))
    if now > max(LATE_SHARE, LATE_GROWTH * before):
        yield _of_query(
            query,
            "HR682",
            severity="warning",
            what=f"late rows are rising: of 1,000 rows {now * 1000:,.0f} were dropped in the last {ENOUGH} batches, "
            f"and {before * 1000:,.0f} in those before",
            fix=f"see where they come from: headrace late {query}; a sender may be behind, or its clock wrong",
        )


def _late_share(batches: list[BatchRecord]) -> float:
    rows = sum(record.rows for record in batches)
    return sum(record.dropped_by_watermark for record in batches) / rows if rows else 0.0


def _quote_names(names: list[str]) -> str:
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


def _find_growing_state(query: str, batches: list[BatchRecord]) -> Iterator[Finding]:
    sizes = [record.state_rows for record in batches if record.state_rows is not None]
    # Below a watermark state is let go of: it grows until the first of it is old enough, and its budget bounds it.
    if len(sizes) < 2 * ENOUGH or sizes[0] == 0 or batches[-1].watermark is not None:
        return
    if all(a < b for a, b in pairwise(sizes)) and sizes[-1] >= GROWTH * sizes[0]:
        yield _of_query(
            query,
            "HR681",
            what=f"its state grew with each of the last {len(sizes)} batches, from {sizes[0]:,} to {sizes[-1]:,} rows",
            fix="if keys are not bounded, declare a watermark and group by a window or drop duplicates within it",
        )


def _find_late_rows(query: str, batches: list[BatchRecord]) -> Iterator[Finding]:
    dropped = sum(record.dropped_by_watermark for record in batches)
    if dropped:
        yield _of_query(
            query,
            "HR682",
            what=f"rows were dropped as later than the watermark: Spark counted {dropped:,} in the last "
            f"{len(batches)} batches, after partial aggregation, so there may be more",
            fix=f"see them with `headrace late {query}`, or declare a longer delay",
        )


# Shorter silences than these happen on any machine that is busy for a while.
SHORTEST_SECONDS = 180.0
SHORTEST_SOURCE_SECONDS = 300.0
# Until there are `ENOUGH` batches, what is usual is unknown: the first ones start Python, compile and load a backlog.
UNKNOWN_SECONDS = 900.0
TRIGGERS = GAPS = 10


def find_stall(
    query: str, records: Sequence[BatchRecord], *, silent_seconds: float, trigger_seconds: float
) -> Iterator[Finding]:
    """No batch was committed for many times what the longest took, and no task of the running one did anything.

    silent_seconds: since Spark last reported a batch or having nothing to do, or a task read or wrote rows, or ended.
    """
    longest = max((record.duration_ms for record in records), default=0) / 1000
    step = max(trigger_seconds, longest, 0.1)
    least = SHORTEST_SECONDS if len(records) >= ENOUGH else UNKNOWN_SECONDS
    if silent_seconds > max(least, TRIGGERS * step):
        before = f"; the longest of the last {len(records)} took {_length(longest)}" if records else ""
        yield _of_query(
            query,
            "HR880",
            what=f"no batch was committed and no task moved for {_length(silent_seconds)}{before}",
            fix="look what the batch waits for: a lock of the database, a broker that is away, an executor that is "
            "lost; headrace stop --now breaks it off",
        )


def find_silent_sources(query: str, records: Sequence[BatchRecord], *, now: datetime) -> Iterator[Finding]:
    """Yield a source that gave rows again and again gives none for much longer than it ever paused.

    now: when Spark last reported that it asked the sources; during a batch it does not.
    """
    names = dict.fromkeys(source.name for record in records for source in record.sources)
    for name in names:
        gave = [record.at for record in records for source in record.sources if source.name == name and source.rows]
        if len(gave) < 3:
            continue
        gap = max((after - before).total_seconds() for before, after in pairwise(gave))
        silent = (now - gave[-1]).total_seconds()
        if silent > max(SHORTEST_SOURCE_SECONDS, GAPS * gap):
            yield _of_query(
                query,
                "HR881",
                what=f"source '{name}' has given no row for {_length(silent)}; before, it paused for {_length(gap)} at "
                "most",
                fix=f"see whether what writes to '{name}' still runs",
            )


def find_lost_executors(before: Collection[str], now: Collection[str]) -> Iterator[Finding]:
    """Executors that were there at the last look and are not any more."""
    lost = sorted(set(before) - set(now))
    if lost:
        many = "executors were" if len(lost) > 1 else "executor was"
        named = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
        yield Finding(
            code="HR882",
            where=Where(file="Spark"),
            what=f"{len(lost)} {many} lost ({named}); {len(now)} remain",
            fix="look into the worker's log; Spark makes the tasks again on those that remain",
        )


def lost_application(master: str, seconds: float) -> Finding:
    """No master that can be reached knows the application, which has had no executor for so long."""
    return Finding(
        code="HR863",
        where=Where(file="Spark"),
        what=f"the application has had no executor for {_length(seconds)}, and the cluster {master} has forgotten it, "
        "or has no master any more",
        fix="start it again: what was committed is safe; headrace submit --supervise and a service do it by themselves",
    )


def _of_query(query: str, code: str, *, what: str, fix: str, severity: Severity = OF_THE_CATALOGUE) -> Finding:
    return Finding(code=code, where=Where(file=f"query '{query}'"), what=what, fix=fix, severity=severity)


def _length(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 60 else f"{seconds:,.0f} seconds"
