"""A checkpoint as it was at the end of an earlier batch: whether that can be had, and a copy of it that is so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.archive import Archive, ArchivedBatch
from headrace.checkpoint.directory import Checkpoint
from headrace.checkpoint.entries import OffsetEntry
from headrace.checkpoint.identity import log_offset
from headrace.checkpoint.logs import numbered, replace_file, text_of
from headrace.checkpoint.restore import restore_log, stores_of
from headrace.checkpoint.state_files import StateStoreFiles, version_of
from headrace.errors import CheckpointError
from headrace.storage.durable import copy_file, files_below
from headrace.storage.remote import RemotePath


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
            return f"it is not known which watermark followed on batch {batch}"
        if self.checkpoint.is_stateful:
            if not self.stores:
                return "what describes its state cannot be read"
            if any(store.bad(batch + 1) is not None for store in self.stores):
                return f"the checkpoint no longer has the state after batch {batch}"
        return ""

    def earliest(self, first: int = 0) -> int | None:
        """The earliest batch from `first` on that the checkpoint can be brought back to, with all that follow it."""
        found = None
        for batch in range(self.checkpoint.last_committed or 0, max(first, 0) - 1, -1):
            if self.blocker(batch):
                break
            found = batch
        return found

    def at(self, time_ms: int) -> int | None:
        """The newest committed batch that was planned up to a time; None: every known one came after it."""
        committed = self.checkpoint.last_committed
        entries = {**{batch: each.entry for batch, each in self.archived.items()}, **self.checkpoint.offsets()}
        done = (batch for batch, entry in entries.items() if entry.timestamp_ms and entry.timestamp_ms <= time_ms)
        return max((batch for batch in done if committed is not None and batch <= committed), default=None)

    def planned_ms(self, batch: int) -> int | None:
        """When a batch was planned, as milliseconds since 1970; None: it is not known."""
        text = self.text(batch)
        return None if text is None else OffsetEntry.parse(batch, text, Path(str(batch))).timestamp_ms or None

    def text(self, batch: int) -> str | None:
        """The offsets of a batch as Spark reads them."""
        text = text_of(self.checkpoint.root / "offsets" / str(batch))
        if text is None and batch in self.archived:
            text = self.archived[batch].entry.format()
        return text

    def commit_text(self, batch: int) -> str | None:
        """The mark that a batch is done, as Spark reads it; of one with state only Spark's own will do."""
        text = text_of(self.checkpoint.root / "commits" / str(batch))
        if text is not None or self.checkpoint.is_stateful:
            return text
        known = self.archived.get(batch)
        watermark = None if known is None else known.next_watermark_ms
        if watermark is None and (following := self.text(batch + 1)) is not None:
            watermark = OffsetEntry.parse(batch + 1, following, Path(str(batch + 1))).watermark_ms
        return None if watermark is None else f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'

    def copy(self, target: Path, batch: int) -> None:
        """Make a copy in `target`, as the checkpoint was at the end of `batch`. Raises OSError, CheckpointError.

        Spark replaces the files of a checkpoint and never changes one, so that the copy shares them with the original.
        """
        for file in sorted(each for each in files_below(self.checkpoint.root) if not each.name.endswith(".tmp")):
            if not _is_later(file.relative_to(self.checkpoint.root), self.checkpoint.root, batch):
                link(file, target / file.relative_to(self.checkpoint.root))
        for number in range(max(batch - 1, 0), batch + 1):
            _fill(target / "offsets" / str(number), self.text(number))
        _fill(target / "commits" / str(batch), self.commit_text(batch))
        reached = OffsetEntry.parse(batch, self.text(batch) or "", target / "offsets" / str(batch))
        for name, end in self._log_ends(reached).items():
            restore_log(target / "sources" / name, {}, end)

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


def link(file: Path, target: Path) -> None:
    """Let `target` be the same file, or one of the same content where a file has one name only. Raises OSError."""
    if isinstance(file, RemotePath):
        copy_file(file, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:
        copy_file(file, target)


def _is_later(inside: Path, root: Path, batch: int) -> bool:
    """Whether a file of the checkpoint is of a batch after `batch`."""
    parts, name = inside.parts, inside.name.removeprefix(".").removesuffix(".crc")
    if parts[0] in ("offsets", "commits") and name.isdigit():
        return int(name) > batch
    if parts[0] != "state" or len(parts) < 4:
        return False
    if parts[2].isdigit():
        version = version_of(inside.name)
        return version is not None and version > batch + 1
    if parts[2:4] == ("_metadata", "v2") and name.isdigit():
        # The newest describes the operator; where all are later, one of them must do.
        return int(name) > batch and any(number <= batch for number in numbered(root / inside.parent))
    return False


def _fill(file: Path, text: str | None) -> None:
    if text is not None and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text)
