"""What one batch of a query takes of each source: the offsets before and after it, by file or by partition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.checkpoint import Archive, Checkpoint, planned
from headrace.checkpoint.identity import log_offset
from headrace.checkpoint.prefix import committed_prefix
from headrace.checkpoint.source_log import log_entries
from headrace.checkpoint.uses import source_of
from headrace.contract import Lag
from headrace.errors import CheckFailed, CheckpointError, Finding
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout, latest_generation
from headrace.run.naming import commanded


@dataclass(frozen=True, kw_only=True)
class Share:
    """A file that a batch takes, or a partition with where it begins and ends there; count: rows between, if known."""

    name: str
    start: str | None = None
    end: str | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class SourceOffsets:
    """One source's share of a batch, by the name that the checkpoint has for it.

    start, end: its JSON offsets; None: it had given nothing yet. lag: what it holds behind the newest committed batch;
    None: it cannot tell without Spark.
    """

    source: str
    kind: str
    start: str | None
    end: str | None
    shares: tuple[Share, ...]
    lag: Lag | None


@dataclass(frozen=True, kw_only=True)
class BatchOffsets:
    """What a batch takes of every source. first, last: the batches that are known."""

    query: str
    batch: int
    committed: bool
    first: int
    last: int
    sources: tuple[SourceOffsets, ...]

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return asdict(self)


def inspect_offsets(project: Project, query: Query, batch: int | None = None) -> BatchOffsets:
    """The offsets of `batch`, or of the newest one that was planned. Raises CheckFailed, CheckpointError."""
    with commanded(query):
        return _inspected(project, query, batch)


def _inspected(project: Project, query: Query, batch: int | None) -> BatchOffsets:
    layout = QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))
    checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
    first, newest = known_batches(query, checkpoint, archive)
    number = newest if batch is None else batch
    if not first <= number <= newest:
        raise CheckFailed(
            Finding(
                code="HR585",
                what=f"batch {number} of query '{query.name}' is not known: its checkpoint and its archive have the "
                f"batches {first} to {newest}",
                fix="name one of those",
                where=query.where,
            )
        )
    entries = planned(checkpoint, archive, number, since=max(number - 1, first))
    entry = entries[number]
    before: Mapping[str, str | None] = {} if number == first else entries[number - 1].offsets
    lags = _lags(project, query, checkpoint, archive)
    kinds = {source.name: source.kind for source in project.sources_of(query)}
    sources = []
    for name, end in entry.offsets.items():
        start = before.get(name)
        sources.append(
            SourceOffsets(
                source=name,
                kind=kinds.get(source_of(name), "unknown"),
                start=start,
                end=end,
                # Where a batch begins is not known if the one before it is in neither place.
                shares=tuple(_shares(checkpoint, name, start, end)) if number != first or number == 0 else (),
                lag=lags.get(source_of(name)),
            )
        )
    committed = checkpoint.last_committed
    return BatchOffsets(
        query=query.name,
        batch=number,
        committed=committed is not None and number <= committed,
        first=first,
        last=newest,
        sources=tuple(sources),
    )


def known_batches(query: Query, checkpoint: Checkpoint, archive: Archive) -> tuple[int, int]:
    """The first and the newest batch from which on all are known. Raises CheckFailed if there is none."""
    newest = checkpoint.last_batch
    if newest is None:
        what = f"query '{query.name}' has planned no batch yet"
        fix = f"run it first: headrace run {query.name}"
        raise CheckFailed(Finding(code="HR585", what=what, fix=fix, where=query.where))
    known = {*checkpoint.offset_numbers(), *archive.entries()}
    first = newest
    while first - 1 in known:
        first -= 1
    return first, newest


def _shares(checkpoint: Checkpoint, name: str, start: str | None, end: str | None) -> Iterator[Share]:
    through = log_offset(end)
    if through is not None:
        begun = log_offset(start)
        entries = log_entries(checkpoint.root / "sources" / name, -1 if begun is None else begun, through)
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
    """The numbers of an offset that are known by a partition or a version: `{"topic":{"0":42}}`, `{"version":7}`."""
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


def _lags(project: Project, query: Query, checkpoint: Checkpoint, archive: Archive) -> dict[str, Lag | None]:
    """What each source still holds, where it can tell without Spark."""
    through, found = checkpoint.last_committed, dict[str, Lag | None]()
    for source in project.sources_of(query):
        try:
            if through is not None:
                prefix = committed_prefix(checkpoint, archive, [source.name], through, since=through)
                found[source.name] = source.connector.lag(prefix[source.name])
        except (CheckpointError, OSError):
            continue
    return found
