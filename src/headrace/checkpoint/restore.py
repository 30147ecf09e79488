"""A checkpoint brought to another batch: forward to the sink's newest, or back to the end of an earlier one.

What was lost is written again from what a sink's ledger keeps, so that Spark makes the same batches again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.archive import Archive, ArchivedBatch
from headrace.checkpoint.directory import (
    COMPACT,
    Checkpoint,
    OffsetEntry,
    Part,
    body,
    is_description,
    numbered_files,
    replace_file,
    state_operator,
    text_of,
)
from headrace.checkpoint.identity import LogEntry, PlannedBatch, log_entries, log_offset, planned_batch
from headrace.checkpoint.state_files import Attempts, StateStoreFiles, stores_in, version_of
from headrace.errors import CheckpointError
from headrace.storage.durable import files_below, link

# As many as a ledger keeps plans of.
_VERSIONS = 101
# What the ledger keeps of a batch, by its number; None: nothing.
Kept = Callable[[int], PlannedBatch | None]


@dataclass(frozen=True, kw_only=True)
class Restorable:
    """From which batch on Spark must make batches again, all of which are in the sink, and what was planned for them.

    first: begins with a state that is whole. last: the sink's newest. plans: of `first` to `last`, of the one before,
    and of earlier ones whose entries are lost.
    """

    first: int
    last: int
    plans: Mapping[int, PlannedBatch]
    stores: tuple[StateStoreFiles, ...] = ()

    @property
    def batches(self) -> tuple[int, int]:
        """The first and the last."""
        return self.first, self.last


def restorable(
    checkpoint: Checkpoint,
    last: int,
    kept: Kept,
    *,
    empty: frozenset[int] = frozenset(),
    partitions: int | None = None,
    roots: Sequence[Path] = (),
) -> Restorable | None:
    """How a checkpoint that has lost entries is brought to batch `last`, the sink's newest.

    None where nothing is lost, and where it cannot be restored: then a look at the whole checkpoint says why.
    """
    newest = max(numbered_files(checkpoint.root / Part.OFFSETS), default=-1)
    if any(batch in empty for batch in range(last + 1, newest + 1)):
        # The partitions of the state were changed since: it has no versions that the sink's batches began with.
        return None
    stores = stores_of(checkpoint.root, partitions)
    if stores is None:
        return None
    whole = _whole_version(stores, last + 1)
    if whole is None:
        return None
    sound = _is_planned(checkpoint, last)
    # State that begins with `last` or lies behind it is all that Spark needs to make `last` again, or to continue.
    done = _is_committed(checkpoint, last)
    if sound and (whole > last or (whole == last and not done)):
        return None
    if stores:
        # A state's version is but a number: it holds what this checkpoint has made of its own plans.
        whole = _whole_version(stores, min(whole, _first_other(checkpoint, last, kept, roots)))
        if whole is None:
            return None
    first = min(whole, last) if stores else last
    plans: dict[int, PlannedBatch] = {}
    for batch in range(max(first - 1, 0), last + 1):
        plan = kept(batch) or _plan_of(checkpoint, batch)
        if plan is None or batch in empty:
            return None
        plans[batch] = plan
    # Without state nothing is computed again but the newest; of those between only the entries are needed.
    there = numbered_files(checkpoint.root / Part.OFFSETS)
    for batch in range(first - 2, -1, -1):
        if _plan_of(checkpoint, batch) is not None:
            break
        if (plan := kept(batch)) is None:
            if batch not in there and any(number < batch for number in there):
                # An old copy of the directory: of the batches between it and the ledger's plans nothing would be left.
                return None
            break
        plans[batch] = plan
    return Restorable(first=first, last=last, plans=dict(sorted(plans.items())), stores=tuple(stores))


def restore(checkpoint: Checkpoint, lost: Restorable) -> None:
    """Make batch `lost.first` the newest planned one of the checkpoint, and remove what follows. Raises OSError.

    After a crash in the middle the checkpoint is behind the sink still, and the next start does it again.
    """
    root, first = checkpoint.root, lost.first
    # The commits go first: Spark would resume from a batch that is marked as done.
    for batch, file in sorted(numbered_files(root / Part.COMMITS).items(), reverse=True):
        if batch >= first or not _is_committed(checkpoint, batch):
            replace_file(file, None)
    for batch, file in sorted(numbered_files(root / Part.OFFSETS).items(), reverse=True):
        if batch > first:
            replace_file(file, None)
    for store in lost.stores:
        for versions in (store.snapshots, store.changes):
            for version, files in versions.items():
                if version > first:
                    for file in files:
                        replace_file(file, None)
    # Entries that the sink's batches did not take are in no plan: Spark finds the files that they name again.
    for name in sorted({name for plan in lost.plans.values() for name in plan.logs}):
        entries = {number: entry for plan in lost.plans.values() for number, entry in plan.logs.get(name, {}).items()}
        end = log_offset(lost.plans[lost.last].entry.offsets.get(name))
        restore_log(root / Part.SOURCES / name, entries, max(entries, default=-1) if end is None else end)
    for batch, plan in lost.plans.items():
        file = root / Part.OFFSETS / str(batch)
        if batch <= first and text_of_sound(file) != plan.offsets:
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, plan.offsets)


def text_of_sound(file: Path) -> str | None:
    """The file's text; None where it is missing or cannot be read."""
    try:
        return text_of(file)
    except CheckpointError:
        return None


def restore_log(folder: Path, entries: Mapping[int, LogEntry], end: int) -> None:
    """Write `entries` into a source's log, and remove what follows the number `end`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, file in sorted(numbered_files(folder).items(), reverse=True):
        if number > end:
            if file.name.endswith(COMPACT):
                _uncompact(folder, file, end)
            replace_file(file, None)
    for number, entry in sorted(entries.items()):
        earlier = _unfold(folder, number) if entry.compacted else ()
        text = "\n".join([entry.head, *earlier, *entry.lines])
        file = folder / f"{number}{COMPACT if entry.compacted else ''}"
        if text_of_sound(file) != text:
            replace_file(file, text)


def _unfold(folder: Path, before: int) -> Iterator[str]:
    """The lines of all entries before one, in their order: of the newest compacted file, and of those after it."""
    files = {number: file for number, file in numbered_files(folder).items() if number < before}
    base = max((number for number, file in files.items() if file.name.endswith(COMPACT)), default=-1)
    if base >= 0:
        yield from _lines(files[base])
    for entry in log_entries(folder, base, before - 1).values():
        yield from entry.lines


def _uncompact(folder: Path, file: Path, end: int) -> None:
    """Write single entries again that only a compacted file holds, which is to be removed."""
    base = max(
        (number for number, other in numbered_files(folder).items() if number <= end and other.name.endswith(COMPACT)),
        default=-1,
    )
    try:
        lines = _lines(file)
    except CheckpointError:
        return
    entries: dict[int, list[str]] = {}
    for line in lines:
        entries.setdefault(int(json.loads(line)["batchId"]), []).append(line)
    for number, texts in entries.items():
        if base < number <= end and not (folder / str(number)).exists():
            replace_file(folder / str(number), "\n".join(["v1", *texts]))


def _lines(file: Path) -> list[str]:
    return list(filter(None, body(file, text_of(file) or "")[1]))


def _is_planned(checkpoint: Checkpoint, batch: int) -> bool:
    """Whether the checkpoint has what it planned for `batch` and for all that it planned later."""
    newest = max(numbered_files(checkpoint.root / Part.OFFSETS), default=-1)
    return newest >= batch and all(_plan_of(checkpoint, number) is not None for number in {batch, newest})


def _plan_of(checkpoint: Checkpoint, batch: int) -> PlannedBatch | None:
    try:
        return planned_batch(checkpoint, batch)
    except CheckpointError:
        return None


def _first_other(checkpoint: Checkpoint, last: int, kept: Kept, roots: Sequence[Path]) -> int:
    """The first batch whose plan here is lost, or is not that of the sink's batch; one behind `last` without any.

    The state that such a batch has left behind may be another than what the sink's rows were computed with, as where a
    copy of this checkpoint has planned the batch over other files.
    """
    oldest = min(numbered_files(checkpoint.root / Part.OFFSETS), default=0)
    for batch in range(oldest + 1 if oldest else 0, last + 1):
        theirs = kept(batch)
        if theirs is None:
            continue
        ours = _plan_of(checkpoint, batch)
        if ours is None or ours.digest(roots) != theirs.digest(roots):
            return batch
    return last + 1


def _is_committed(checkpoint: Checkpoint, batch: int) -> bool:
    with suppress(CheckpointError):
        return checkpoint.commit(batch) is not None
    return False


def stores_of(root: Path, partitions: int | None) -> list[StateStoreFiles] | None:
    """Every store of every partition; none for a query without state, None where it is not known how many there are."""
    stores: list[StateStoreFiles] = []
    attempts = Attempts(root)
    for number in sorted(numbered_files(root / Part.STATE)):
        folder = root / Part.STATE / str(number)
        try:
            operator = state_operator(folder)
        except CheckpointError:
            return None
        if operator is None:
            return None
        stores += stores_in(folder, operator, partitions, attempts)
    return stores


def _whole_version(stores: list[StateStoreFiles], most: int) -> int | None:
    """The newest version, up to `most`, that every store can give; `most` without stores."""
    for version in range(most, max(most - _VERSIONS, -1), -1):
        if all(store.bad(version) is None for store in stores):
            return version
    return None


@dataclass(frozen=True)
class Past:
    """The committed batches of a checkpoint that no driver runs, and which of them it can be brought back to.

    since: the first batch whose state has as many partitions as now.
    """

    checkpoint: Checkpoint
    archived: Mapping[int, ArchivedBatch]
    stores: tuple[StateStoreFiles, ...]
    since: int = 0

    @classmethod
    def of(cls, checkpoint: Checkpoint, archive: Archive, *, partitions: int | None = None, since: int = 0) -> Past:
        """Look at a checkpoint; an archive that cannot be read has no batches."""
        archived: Mapping[int, ArchivedBatch] = {}
        with suppress(CheckpointError):
            archived = archive.batches()
        return cls(checkpoint, archived, tuple(stores_of(checkpoint.root, partitions) or ()), since)

    def blocker(self, batch: int) -> str:
        """Why the checkpoint cannot be brought back to the end of `batch`; "": it can."""
        committed = self.checkpoint.last_committed
        if committed is None or batch > committed:
            return f"its newest committed batch is {'none' if committed is None else committed}"
        if batch < self.since:
            return f"batch {self.since} has brought its state into another number of partitions"
        for number in range(max(batch - 1, 0), batch + 1):
            if self.text(number) is None:
                return f"neither its checkpoint nor its archive has the offsets of batch {number}"
        if self.commit_text(batch) is None:
            return f"the watermark after batch {batch} is not known"
        if self.checkpoint.is_stateful:
            if not self.stores:
                return "what describes its state cannot be read"
            if any(store.bad(batch + 1) is not None for store in self.stores):
                return f"the checkpoint no longer has the state after batch {batch}"
        return ""

    def earliest(self, first: int = 0) -> int | None:
        """The earliest batch from `first` on that the checkpoint can be brought back to, with all that follow it."""
        earliest = None
        for batch in range(self.checkpoint.last_committed or 0, max(first, 0) - 1, -1):
            if self.blocker(batch):
                break
            earliest = batch
        return earliest

    def at(self, time_ms: int) -> int | None:
        """The newest committed batch that was planned up to a time; None: every known one came after it."""
        committed = self.checkpoint.last_committed
        entries = {**{batch: archived.entry for batch, archived in self.archived.items()}, **self.checkpoint.offsets()}
        done = (batch for batch, entry in entries.items() if entry.timestamp_ms and entry.timestamp_ms <= time_ms)
        return max((batch for batch in done if committed is not None and batch <= committed), default=None)

    def planned_ms(self, batch: int) -> int | None:
        """When a batch was planned, as milliseconds since 1970; None: it is not known."""
        text = self.text(batch)
        return None if text is None else OffsetEntry.parse(batch, text, Path(str(batch))).timestamp_ms or None

    def text(self, batch: int) -> str | None:
        """The offsets of a batch as Spark reads them."""
        text = text_of(self.checkpoint.root / Part.OFFSETS / str(batch))
        if text is None and batch in self.archived:
            text = self.archived[batch].entry.format()
        return text

    def commit_text(self, batch: int) -> str | None:
        """The mark that a batch is done, as Spark reads it; of one with state only Spark's own will do."""
        text = text_of(self.checkpoint.root / Part.COMMITS / str(batch))
        if text is not None or self.checkpoint.is_stateful:
            return text
        archived = self.archived.get(batch)
        watermark = None if archived is None else archived.next_watermark_ms
        if watermark is None and (following := self.text(batch + 1)) is not None:
            watermark = OffsetEntry.parse(batch + 1, following, Path(str(batch + 1))).watermark_ms
        return None if watermark is None else f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'

    def copy(self, target: Path, batch: int) -> None:
        """Make a copy in `target`, as the checkpoint was at the end of `batch`. Raises OSError, CheckpointError.

        Spark replaces the files of a checkpoint and never changes one, so that the copy shares them with the original.
        """
        for file in sorted(path for path in files_below(self.checkpoint.root) if not path.name.endswith(".tmp")):
            if not _is_later(file.relative_to(self.checkpoint.root), self.checkpoint.root, batch):
                link(file, target / file.relative_to(self.checkpoint.root))
        for number in range(max(batch - 1, 0), batch + 1):
            _fill(target / Part.OFFSETS / str(number), self.text(number))
        _fill(target / Part.COMMITS / str(batch), self.commit_text(batch))
        reached = OffsetEntry.parse(batch, self.text(batch) or "", target / Part.OFFSETS / str(batch))
        for name, end in self._log_ends(reached).items():
            restore_log(target / Part.SOURCES / name, {}, end)

    def _log_ends(self, reached: OffsetEntry) -> dict[str, int]:
        """Up to which entry of its own log each source was read; -1: it had given nothing."""
        newest = self.checkpoint.offsets()
        ends = {}
        for name in self.checkpoint.source_names():
            end = log_offset(reached.offsets.get(name))
            is_log = any(log_offset(entry.offsets.get(name)) is not None for entry in newest.values())
            if end is not None or is_log:
                ends[name] = -1 if end is None else end
        return ends


def _is_later(inside: Path, root: Path, batch: int) -> bool:
    """Whether a file of the checkpoint is of a batch after `batch`."""
    parts, name = inside.parts, inside.name.removeprefix(".").removesuffix(".crc")
    if parts[0] in (Part.OFFSETS, Part.COMMITS) and name.isdigit():
        return int(name) > batch
    if parts[0] != Part.STATE or len(parts) < 4:
        return False
    if parts[2].isdigit():
        version = version_of(inside.name)
        return version is not None and version > batch + 1
    if is_description(inside) and name.isdigit():
        # The newest describes the operator; where all are later, one of them must do.
        return int(name) > batch and any(number <= batch for number in numbered_files(root / inside.parent))
    return False


def _fill(file: Path, text: str | None) -> None:
    if text is not None and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text)
