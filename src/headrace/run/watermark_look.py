"""How the watermark of a query has moved, what holds it back, and what has to come before it closes a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from headrace.check.policy import POLICY
from headrace.check.window_lengths import window_lengths
from headrace.checkpoint import Archive, Checkpoint, planned
from headrace.errors import HeadraceError
from headrace.history import History
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout, history_file, latest_generation
from headrace.progress import BatchRecord
from headrace.run.naming import commanded
from headrace.run.offsets_look import known_batches
from headrace.units import Duration


@dataclass(frozen=True, kw_only=True)
class BatchWatermark:
    """The watermark in force in a batch (None: none yet), and when the batch was planned."""

    batch: int
    watermark: datetime | None
    planned: datetime | None


@dataclass(frozen=True, kw_only=True)
class WatermarkedSource:
    """A source with a watermark: rows that it gave, and the last batch in which it gave any; None: none is known.

    watermark: what the source alone would allow; known where it is the only one. holds_back: other sources gave rows
    since the watermark last moved, and this one gave none.
    """

    source: str
    column: str
    delay: str
    rows: int
    last_batch: int | None
    watermark: datetime | None
    holds_back: bool


@dataclass(frozen=True, kw_only=True)
class NextWindow:
    """The next window to close, of those whose length the query's text tells: when each source gives a row as late."""

    length: str
    ends: datetime
    needs: tuple[tuple[str, datetime], ...]


@dataclass(frozen=True, kw_only=True)
class Watermarks:
    """How far the watermark is: `next_watermark` is that of the batch to come.

    policy: which of several sources decides, min or max. since: the batch since which it stands.
    """

    query: str
    next_watermark: datetime | None
    policy: str
    since: int | None
    batches: tuple[BatchWatermark, ...]
    sources: tuple[WatermarkedSource, ...]
    windows: tuple[NextWindow, ...]

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        plain = asdict(self)
        for window in plain["windows"]:
            window["needs"] = dict(window["needs"])
        return plain


def inspect_watermark(project: Project, query: Query, *, limit: int = 20) -> Watermarks:
    """The watermarks of the last `limit` batches, without a JVM. Raises CheckFailed, CheckpointError."""
    with commanded(query):
        return _inspected(project, query, limit)


def _inspected(project: Project, query: Query, limit: int) -> Watermarks:
    layout = QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))
    checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
    first, newest = known_batches(query, checkpoint, archive)
    entries = planned(checkpoint, archive, newest, since=first)
    commit = checkpoint.commit(newest)
    following_ms = entries[newest].watermark_ms if commit is None else commit.next_watermark_ms
    moved = [number for number in entries if number > first and _moved(entries[number - 1], entries[number])]
    since = max(moved, default=first) if following_ms == entries[newest].watermark_ms else None
    records = [each for each in _records(project, layout) if each.batch in entries]
    sources = tuple(_sources(project, query, records, since, _moment(following_ms)))
    return Watermarks(
        query=query.name,
        next_watermark=_moment(following_ms),
        policy=entries[newest].conf.get(POLICY, "min"),
        since=since,
        batches=tuple(
            BatchWatermark(batch=number, watermark=_moment(entry.watermark_ms), planned=_moment(entry.timestamp_ms))
            for number, entry in list(entries.items())[-limit:]
        ),
        sources=sources,
        windows=tuple(_windows(project, query, following_ms)) if sources else (),
    )


def _moved(before: Any, after: Any) -> bool:
    return bool(before.watermark_ms != after.watermark_ms)


def _records(project: Project, layout: QueryLayout) -> list[BatchRecord]:
    """What the history has of the generation's batches; nothing where it cannot be read."""
    file = history_file(project.local_storage)
    if not file.exists():
        return []
    try:
        with History.open(file, read_only=True) as history:
            return history.recent(layout.query, 10_000, generation=layout.generation)
    except HeadraceError:
        return []


def _sources(
    project: Project, query: Query, records: list[BatchRecord], since: int | None, watermark: datetime | None
) -> Iterator[WatermarkedSource]:
    declared = [source for source in project.sources_of(query) if source.watermark is not None]
    names = {source.name for source in declared}
    given = [(record.batch, each) for record in records for each in record.sources if each.name in names and each.rows]
    standing = {each.name for batch, each in given if since is not None and batch >= since}
    for source in declared:
        assert source.watermark is not None, "the others were left out"
        own = [(batch, each.rows) for batch, each in given if each.name == source.name]
        yield WatermarkedSource(
            source=source.name,
            column=source.watermark.column,
            delay=source.watermark.delay.text,
            rows=sum(rows for _, rows in own),
            last_batch=max((batch for batch, _ in own), default=None),
            watermark=watermark if len(declared) == 1 else None,
            holds_back=bool(standing) and source.name not in standing,
        )


def _windows(project: Project, query: Query, watermark_ms: int) -> Iterator[NextWindow]:
    """The next window of each length, counted from 1970 as Spark does; one with another start is left out."""
    delays = [(source.name, source.watermark.delay) for source in project.sources_of(query) if source.watermark]
    for length, slide in sorted(window_lengths(project, query)):
        step = round(Duration.parse(slide or length).seconds * 1000)
        whole = round(Duration.parse(length).seconds * 1000)
        if watermark_ms <= 0 or not step:
            continue
        ends = ((watermark_ms - whole) // step + 1) * step + whole
        needs = tuple((name, _known(ends + round(delay.seconds * 1000))) for name, delay in delays)
        yield NextWindow(length=length if not slide else f"{length} each {slide}", ends=_known(ends), needs=needs)


def _known(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def _moment(milliseconds: int) -> datetime | None:
    return _known(milliseconds) if milliseconds > 0 else None
