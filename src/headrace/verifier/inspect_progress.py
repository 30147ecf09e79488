"""What each batch took of each source, and how the watermark moved: what holds it back, what closes a window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from headrace.checkpoint import Archive, Checkpoint, planned_offsets
from headrace.checkpoint.directory import Part
from headrace.checkpoint.identity import log_entries, log_offset
from headrace.checkpoint.sources import SourceNames, committed_prefix, source_of
from headrace.checks.state_bounds import POLICY, window_lengths
from headrace.contract import BatchRecord, Lag
from headrace.errors import CheckFailed, HeadraceError, PlainData
from headrace.generations.blame import name_command
from headrace.generations.facts import read_source_names
from headrace.generations.log import QueryLayout, history_file
from headrace.generations.register import layout_of
from headrace.history import History
from headrace.model import Project, Query
from headrace.units import Duration, instant


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
    """The next window to close, of those with a length in the query's text; `needs`: the event times that close it."""

    length: str
    ends: datetime
    needs: tuple[tuple[str, datetime], ...]


@dataclass(frozen=True, kw_only=True)
class Watermarks:
    """How the watermark of a query moved, and what holds it back.

    Attributes:
        next_watermark: The watermark of the next batch; None if there is none yet.
        policy: Which of several sources decides: `min` or `max`.
        since: The batch since which the watermark stands.
        batches: The watermark of each batch.
        sources: The watermark of each source.
        windows: The windows that close next.
    """

    query: str
    next_watermark: datetime | None
    policy: str
    since: int | None
    batches: tuple[BatchWatermark, ...]
    sources: tuple[WatermarkedSource, ...]
    windows: tuple[NextWindow, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data, for `--json`."""
        plain = asdict(self)
        for window in plain["windows"]:
            window["needs"] = dict(window["needs"])
        return plain


def inspect_watermark(project: Project, query: Query, *, limit: int = 20) -> Watermarks:
    """Return the watermarks of the last `limit` batches, without a JVM. Raises CheckFailed, CheckpointError."""
    with name_command(query):
        layout = layout_of(project, query)
        checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
        first, newest = known_batches(query, checkpoint, archive)
        entries = planned_offsets(checkpoint, archive, newest, since=first)
        commit = checkpoint.commit(newest)
        following_ms = entries[newest].watermark_ms if commit is None else commit.next_watermark_ms
        moved = [now.batch for before, now in pairwise(entries.values()) if now.watermark_ms != before.watermark_ms]
        since = max(moved, default=first) if following_ms == entries[newest].watermark_ms else None
        records = [record for record in _records(project, layout) if record.batch in entries]
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


def _records(project: Project, layout: QueryLayout) -> list[BatchRecord]:
    """Return the history's records of the generation's batches; none if it cannot be read."""
    file = history_file(project.local_storage)
    with suppress(HeadraceError):
        if file.exists():
            with History.open(file, read_only=True) as history:
                return history.recent(layout.query, 10_000, generation=layout.generation)
    return []


def _sources(
    project: Project, query: Query, records: list[BatchRecord], since: int | None, watermark: datetime | None
) -> Iterator[WatermarkedSource]:
    declared = [source for source in project.sources_of(query) if source.watermark is not None]
    names = {source.name for source in declared}
    given = [(record.batch, part) for record in records for part in record.sources if part.name in names and part.rows]
    standing = {part.name for batch, part in given if since is not None and batch >= since}
    for source in declared:
        assert source.watermark is not None, "the others were left out"
        own = [(batch, part.rows) for batch, part in given if part.name == source.name]
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
    """Yield the next window of each length, counted from 1970 as Spark does; one with another start is left out."""
    delays = [(source.name, source.watermark.delay) for source in project.sources_of(query) if source.watermark]
    for length, slide in sorted(window_lengths(project, query)):
        step, whole = (Duration.parse(text).milliseconds for text in (slide or length, length))
        if watermark_ms <= 0 or not step:
            continue
        ends = ((watermark_ms - whole) // step + 1) * step + whole
        needs = tuple((name, instant((ends + delay.milliseconds) / 1000)) for name, delay in delays)
        yield NextWindow(length=f"{length} each {slide}" if slide else length, ends=instant(ends / 1000), needs=needs)


def _moment(milliseconds: int) -> datetime | None:
    return instant(milliseconds / 1000) if milliseconds > 0 else None


@dataclass(frozen=True, kw_only=True)
class Share:
    """A file that a batch takes, or a partition with where it begins and ends there; count: rows between, if known."""

    name: str
    start: str | None = None
    end: str | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class SourceOffsets:
    """One source's share of a batch, by its name now.

    start, end: its JSON offsets; None: it had given nothing yet. lag: what it holds behind the newest committed batch;
    None: it is not known without Spark.
    """

    source: str
    kind: str
    start: str | None
    end: str | None
    shares: tuple[Share, ...]
    lag: Lag | None


@dataclass(frozen=True, kw_only=True)
class BatchOffsets(PlainData):
    """The part of each source that a batch takes.

    Attributes:
        batch: The batch.
        committed: Whether the batch is committed.
        first: The first batch that can be shown.
        last: The last batch that can be shown.
        sources: The offsets of each source before and after the batch.
    """

    query: str
    batch: int
    committed: bool
    first: int
    last: int
    sources: tuple[SourceOffsets, ...]


def inspect_offsets(project: Project, query: Query, batch: int | None = None) -> BatchOffsets:
    """Return the offsets of `batch`, or of the newest one that was planned. Raises CheckFailed, CheckpointError."""
    with name_command(query):
        layout = layout_of(project, query)
        checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
        first, newest = known_batches(query, checkpoint, archive)
        number = newest if batch is None else batch
        if not first <= number <= newest:
            raise CheckFailed(
                code="HR588",
                what=f"batch {number} of query '{query.name}' is not known: its checkpoint and its archive have the "
                f"batches {first} to {newest}",
                fix="name one of those",
                where=query.where,
            )
        entries = planned_offsets(checkpoint, archive, number, since=max(number - 1, first))
        entry = entries[number]
        before: Mapping[str, str | None] = {} if number == first else entries[number - 1].offsets
        names = read_source_names(project, query, layout)
        lags = _lags(project, query, names, checkpoint, archive)
        kinds = {source.name: source.kind for source in project.sources_of(query)}
        # Where a batch begins is not known if the one before it is in neither place.
        begins = number != first or number == 0
        sources = tuple(
            SourceOffsets(
                source=names.now(name),
                kind=kinds.get(source_of(names.now(name)), "unknown"),
                start=before.get(name),
                end=end,
                shares=tuple(_shares(checkpoint, name, before.get(name), end)) if begins else (),
                lag=lags.get(source_of(names.now(name))),
            )
            for name, end in entry.offsets.items()
        )
        committed = checkpoint.last_committed
        return BatchOffsets(
            query=query.name,
            batch=number,
            committed=committed is not None and number <= committed,
            first=first,
            last=newest,
            sources=sources,
        )


def known_batches(query: Query, checkpoint: Checkpoint, archive: Archive) -> tuple[int, int]:
    """Return the first batch from which on all are known, and the newest one. Raises CheckFailed if there is none."""
    newest = checkpoint.last_batch
    if newest is None:
        fix = f"run it first: headrace run {query.name}"
        raise CheckFailed(query.finding("HR588", "has planned no batch yet", fix))
    numbers = {*checkpoint.offset_numbers(), *archive.entries()}
    first = newest
    while first - 1 in numbers:
        first -= 1
    return first, newest


def _shares(checkpoint: Checkpoint, name: str, start: str | None, end: str | None) -> Iterator[Share]:
    through = log_offset(end)
    if through is not None:
        begun = log_offset(start)
        entries = log_entries(checkpoint.root / Part.SOURCES / name, -1 if begun is None else begun, through)
        for entry in entries.values():
            for line in entry.lines:
                yield Share(name=str(json.loads(line)["path"]))
        return
    before, after = dict(_numbers(start)), dict(_numbers(end))
    for part, reached in after.items():
        began = before.get(part)
        count = None if began is None else reached - began
        yield Share(name=part, start=None if began is None else str(began), end=str(reached), count=count)


def _numbers(offset: str | None) -> Iterator[tuple[str, int]]:
    """Yield the numbers of an offset by partition or version: `{"topic":{"0":42}}`, `{"version":7}`."""
    try:
        value = json.loads(offset) if offset is not None else None
    except ValueError:
        return
    for name, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, dict):
            yield from ((f"{name}-{part}", number) for part, number in inner.items() if _is_number(number))
        elif _is_number(inner):
            yield name, inner


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _lags(
    project: Project, query: Query, names: SourceNames, checkpoint: Checkpoint, archive: Archive
) -> dict[str, Lag | None]:
    """Return what each source still holds, as far as is known without Spark."""
    through, lags = checkpoint.last_committed, dict[str, Lag | None]()
    for source in project.sources_of(query):
        with suppress(HeadraceError, OSError):
            if through is not None:
                prefix = committed_prefix(checkpoint, archive, names, through, since=through)
                lags[source.name] = source.connector.lag(prefix[source.name])
    return lags
