"""The committed prefix of a query's inputs, and the watermarks that its batches ran under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.checkpoint.archive import Archive
from headrace.checkpoint.directory import Checkpoint
from headrace.checkpoint.entries import OffsetEntry
from headrace.contract import SourceBatch, SourcePrefix
from headrace.errors import CheckpointFault, Finding, Where


@dataclass(frozen=True)
class BatchWatermarks:
    """The two watermarks of a batch, 0 while there is none.

    late_ms: what is older is dropped on arrival: the watermark of the batch before.
    evict_ms: state that is older is finished in this batch: the batch's own watermark.
    """

    late_ms: int
    evict_ms: int


def planned(checkpoint: Checkpoint, archive: Archive, through: int) -> dict[int, OffsetEntry]:
    """The offsets of the batches 0 to `through`, from the checkpoint and, what Spark has purged, from the archive.

    Raises CheckpointFault when one of them is in neither.
    """
    kept = checkpoint.offsets()
    if through >= 0 and through not in kept and through > max(kept, default=-1):
        raise CheckpointFault(
            Finding(
                code="HR510",
                where=Where(file=str(checkpoint.root)),
                what=f"batch {through} is not in the checkpoint, whose newest batch is {max(kept, default='none')}",
                fix="if the checkpoint was replaced by a copy, restore the sink's copy of the same time",
            )
        )
    entries = {batch: entry for batch, entry in {**archive.entries(), **kept}.items() if batch <= through}
    missing = [batch for batch in range(through + 1) if batch not in entries]
    if missing:
        raise CheckpointFault(
            Finding(
                code="HR511",
                where=Where(file=str(checkpoint.root)),
                what=f"the batches from 0 to {through} are known without a gap only from batch {missing[-1] + 1} on",
                fix=f"restore {archive.path.name} from a backup, or begin the query anew",
            )
        )
    return dict(sorted(entries.items()))


def committed_prefix(
    checkpoint: Checkpoint, archive: Archive, source_names: Sequence[str], through: int
) -> dict[str, SourcePrefix]:
    """What each named source gave in the batches 0 to `through`, with the source's own log.

    A source that was added later has neither start nor end in the batches before.
    """
    entries = planned(checkpoint, archive, through)
    keys = _keys(checkpoint, entries, source_names)
    prefixes = {}
    for name, key in keys.items():
        batches, start = [], None
        for batch, entry in entries.items():
            end = entry.offsets.get(key)
            batches.append(SourceBatch(batch=batch, start=start, end=end))
            start = end
        prefixes[name] = SourcePrefix(batches=tuple(batches), log=checkpoint.source_log(key))
    return prefixes


def watermarks(checkpoint: Checkpoint, archive: Archive, through: int) -> dict[int, BatchWatermarks]:
    """The watermarks of the batches 0 to `through`."""
    found, before = {}, 0
    for batch, entry in planned(checkpoint, archive, through).items():
        found[batch] = BatchWatermarks(late_ms=before, evict_ms=entry.watermark_ms)
        before = entry.watermark_ms
    return found


def _keys(checkpoint: Checkpoint, entries: dict[int, OffsetEntry], names: Sequence[str]) -> dict[str, str]:
    """What each source is called in the checkpoint: its name, or its number in the first format."""
    known = {key for entry in entries.values() for key in entry.offsets}
    if known == {"0"} and len(names) == 1:
        return {names[0]: "0"}
    strangers = [name for name in names if name not in known]
    if known and strangers and all(key.isdigit() for key in known):
        raise CheckpointFault(
            Finding(
                code="HR512",
                where=Where(file=str(checkpoint.root)),
                what=f"the checkpoint numbers its {len(known)} sources, so it cannot be told which is '{strangers[0]}'",
                fix="begin the query anew, with named sources",
            )
        )
    return {name: name for name in names}
