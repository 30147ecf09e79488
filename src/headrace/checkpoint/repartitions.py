"""The changes of a query's number of state partitions: what was asked for, and how far it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headrace.checkpoint.directory import RESTORE, Checkpoint, Part, broken_file, replace_file
from headrace.errors import CheckpointError, Where, reason
from headrace.storage import durable, json_lines
from headrace.storage.private import writing_to

PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, kw_only=True)
class PartitionChange:
    """One change, which Spark makes as a batch without data: `batch` holds the state in `after` partitions."""

    batch: int
    before: int
    after: int
    at: str


@dataclass(frozen=True)
class Repartitions:
    """The changes of one generation of a query; each is entered before Spark begins it.

    A change counts once its batch is committed. Spark's own metadata of an aggregation's state keeps the first number.
    """

    path: Path

    def all(self) -> tuple[PartitionChange, ...]:
        """Every change that was entered, oldest first."""
        try:
            return tuple(PartitionChange(**line) for line in json_lines.read(self.path, skip="none"))
        except (json_lines.DamagedLine, OSError, TypeError) as error:
            raise CheckpointError(
                code="HR503",
                where=Where(file=str(self.path), line=getattr(error, "number", None)),
                what=f"the record of changed state partitions cannot be read: {reason(error)}",
                fix=RESTORE,
            ) from error

    def done(self, checkpoint: Checkpoint) -> tuple[PartitionChange, ...]:
        """The changes whose batches are committed."""
        return _up_to(self.all(), checkpoint.last_committed)

    def batches(self, checkpoint: Checkpoint) -> frozenset[int]:
        """The batches that hold no rows, only state in other partitions."""
        return frozenset(change.batch for change in self.done(checkpoint))

    def cut_off(self, checkpoint: Checkpoint) -> PartitionChange | None:
        """The change that Spark began and did not end."""
        begun = _up_to(self.all(), checkpoint.last_batch)
        return begun[-1] if len(begun) > len(self.done(checkpoint)) else None

    def partitions(self, checkpoint: Checkpoint) -> int | None:
        """The number of partitions that the state has now, or None without state."""
        done = self.done(checkpoint)
        return done[-1].after if done else checkpoint.state_partitions()

    def enter(self, change: PartitionChange) -> None:
        """Enter a change that is to be made."""
        self._write([*self.all(), change])

    def forget_unbegun(self, checkpoint: Checkpoint) -> None:
        """Leave out the changes that Spark never began, before their batches are used for data."""
        entered = self.all()
        begun = _up_to(entered, checkpoint.last_batch)
        if len(begun) < len(entered):
            self._write(begun)

    def _write(self, changes: Sequence[PartitionChange]) -> None:
        with writing_to(self.path.parent):
            durable.replace_file(self.path, json_lines.text_of(asdict(change) for change in changes))


def note_partitions(checkpoint: Checkpoint, batch: int, partitions: int) -> None:
    """Write the number of state partitions into the plan of `batch`, where Spark left it out.

    Spark 4.2 writes the number into plans with named sources only sometimes, and fails without it (None.get).
    """
    file, entry = checkpoint.root / Part.OFFSETS / str(batch), checkpoint.offset(batch)
    if entry is None:
        raise broken_file(file, "it is gone")
    if PARTITIONS not in entry.conf:
        with writing_to(file.parent):
            replace_file(file, replace(entry, conf={**entry.conf, PARTITIONS: str(partitions)}).format())


def _up_to(changes: Sequence[PartitionChange], batch: int | None) -> tuple[PartitionChange, ...]:
    return () if batch is None else tuple(change for change in changes if change.batch <= batch)
