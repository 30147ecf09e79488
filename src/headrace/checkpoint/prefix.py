"""The committed prefix of a query's inputs, and the watermarks that its batches ran under."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from headrace.checkpoint.archive import Archive
from headrace.checkpoint.directory import Checkpoint
from headrace.checkpoint.entries import OffsetEntry
from headrace.checkpoint.read_files import ReadFile, ReadFiles
from headrace.checkpoint.source_ids import SourceIds
from headrace.checkpoint.sources import SourceNames, further_uses, source_of
from headrace.errors import CheckpointError, Where
from headrace.storage import json_record

# The record next to the archive of an adopted query, as `QueryLayout.adoption` names it.
ADOPTED = "adopted.json"


@dataclass(frozen=True, kw_only=True)
class SourceBatch:
    """One batch's share of a source: the JSON offsets between which its rows lie.

    `start` is None where the source had given nothing yet; `start == end` where the batch has no data of it.
    """

    batch: int
    start: str | None
    end: str | None


@dataclass(frozen=True, kw_only=True)
class SourcePrefix:
    """A committed prefix of one source, as Spark's checkpoint has it.

    batches: in order of their ids, without gaps as far as the checkpoint and its archive reach.
    log: the source's own metadata log (`<checkpoint>/sources/<name>/<id>`), id to lines, version line left out;
        compacted files are already unfolded (file source: one JSON line for each file, with path, timestamp, batchId).
    read_files: reads what the files were when they were read, by their paths; not each one is known. Raises
        CheckpointError.
    ids: reads the ids that the things read had when they were read first, by name (`object_ids` of a source). Raises
        CheckpointError.
    """

    batches: tuple[SourceBatch, ...]
    log: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    read_files: Callable[[], Mapping[str, ReadFile]] = field(default=dict, compare=False, repr=False)
    ids: Callable[[], Mapping[str, str]] = field(default=dict, compare=False, repr=False)


@dataclass(frozen=True)
class BatchWatermarks:
    """The two watermarks of a batch, 0 while there is none.

    late_ms: what is older is dropped on arrival: the watermark of the batch before.
    evict_ms: state that is older is finished in this batch: the batch's own watermark.
    """

    late_ms: int
    evict_ms: int


def planned_offsets(
    checkpoint: Checkpoint, archive: Archive, through: int, *, since: int = 0
) -> dict[int, OffsetEntry]:
    """The offsets of the batches `since` to `through`, from the checkpoint and, if purged there, from the archive.

    Raises CheckpointError when one of them is in neither. The archive is read only where the checkpoint has not all.
    """
    kept = checkpoint.offsets()
    if through >= 0 and through not in kept and through > max(kept, default=-1):
        raise CheckpointError(
            code="HR510",
            where=Where(file=str(checkpoint.root)),
            what=f"batch {through} is not in the checkpoint, whose newest batch is {max(kept, default='none')}",
            fix="if the checkpoint was replaced by a copy, restore the sink's copy of the same time",
        )
    wanted = range(since, through + 1)
    entries = kept if all(batch in kept for batch in wanted) else {**archive.entries(since), **kept}
    missing = [batch for batch in wanted if batch not in entries]
    if missing:
        raise CheckpointError(
            code="HR511",
            where=Where(file=str(checkpoint.root)),
            what=f"the batches from {since} to {through} are known without a gap only from batch {missing[-1] + 1} on",
            fix=_fix_of_gap(archive, missing[-1]),
        )
    return {batch: entries[batch] for batch in wanted}


def _fix_of_gap(archive: Archive, last: int) -> str:
    """What there is to do where the batches up to `last` are not known."""
    damaged = json_record.Damaged(
        file=archive.path.with_name(ADOPTED),
        code="HR584",
        what="the record of an adoption cannot be read",
        fix="restore it from a backup; or remove it, if the query has run since",
    )
    adopted = json_record.read(damaged.file, lambda facts: facts["committed"], damaged)
    if adopted is not None and last <= int(adopted):
        return (
            "nothing: Spark had purged them before the query was adopted. The query runs on; a "
            "rebuilt result (headrace rebuild) can be verified"
        )
    return (
        f"restore {archive.path.name} from a backup; without it the query runs on, and what it read before can no "
        "longer be verified"
    )


def committed_prefix(
    checkpoint: Checkpoint, archive: Archive, names: SourceNames, through: int, *, since: int = 0
) -> dict[str, SourcePrefix]:
    """What each declared source gave in the batches `since` to `through`, with the source's own log.

    A source that was added later has neither start nor end in the batches before. Further uses of a source are there
    under names that follow from its own.
    """
    entries = planned_offsets(checkpoint, archive, through, since=max(since - 1, 0))
    before = entries.pop(since - 1, None)
    return _prefixes(checkpoint, before, entries, names)


def planned_prefix(checkpoint: Checkpoint, names: SourceNames) -> dict[str, SourcePrefix] | None:
    """What each declared source is to give again in the batches that are planned and not committed; None without one.

    It reads the checkpoint alone, as Spark does.
    """
    entries, committed = checkpoint.offsets(), checkpoint.last_committed
    done = -1 if committed is None else committed
    again = {batch: entry for batch, entry in entries.items() if batch > done}
    if not again:
        return None
    # Async progress leaves out offsets, so the batch before need not be the number before.
    before = max((batch for batch in entries if batch <= done), default=None)
    return _prefixes(checkpoint, None if before is None else entries[before], again, names)


def _prefixes(
    checkpoint: Checkpoint, before: OffsetEntry | None, entries: dict[int, OffsetEntry], names: SourceNames
) -> dict[str, SourcePrefix]:
    keys = _keys(checkpoint, entries, names)
    read_files, ids = ReadFiles(checkpoint.root.parent).read, SourceIds(checkpoint.root.parent)
    return {
        name: SourcePrefix(
            batches=batches_of(key, entries, None if before is None else before.offsets.get(key)),
            log=checkpoint.source_log(key),
            read_files=read_files,
            ids=partial(ids.of, source_of(key)),
        )
        for name, key in keys.items()
    }


def batches_of(key: str, entries: Mapping[int, OffsetEntry], start: str | None = None) -> tuple[SourceBatch, ...]:
    """The share of each batch of the source that the entries call `key`, from `start` on."""
    ends = [entry.offsets.get(key) for entry in entries.values()]
    shares = zip(entries, (start, *ends), ends, strict=False)
    return tuple(SourceBatch(batch=batch, start=begun, end=end) for batch, begun, end in shares)


def watermarks(checkpoint: Checkpoint, archive: Archive, through: int, *, since: int = 0) -> dict[int, BatchWatermarks]:
    """The watermarks of the batches `since` to `through`."""
    entries = planned_offsets(checkpoint, archive, through, since=max(since - 1, 0))
    marks, before = {}, entries.pop(since - 1).watermark_ms if since else 0
    for batch, entry in entries.items():
        marks[batch] = BatchWatermarks(late_ms=before, evict_ms=entry.watermark_ms)
        before = entry.watermark_ms
    return marks


def _keys(checkpoint: Checkpoint, entries: dict[int, OffsetEntry], names: SourceNames) -> dict[str, str]:
    """The key of each source in the checkpoint: its name, or its number in the first format."""
    keys = {key for entry in entries.values() for key in entry.offsets}
    if keys == {"0"} and len(names.declared) == 1:
        return {names.declared[0]: "0"}
    uses = [*names.declared, *further_uses(names.declared, map(names.now, keys))]
    strangers = [use for use in uses if names.in_spark(use) not in keys]
    if keys and strangers and all(key.isdigit() for key in keys):
        raise CheckpointError(
            code="HR512",
            where=Where(file=str(checkpoint.root)),
            what=f"the checkpoint numbers its {len(keys)} sources, so it cannot be "
            f"determined which is '{strangers[0]}'",
            fix="reset the query (headrace reset QUERY), with named sources",
        )
    return {use: names.in_spark(use) for use in uses}
