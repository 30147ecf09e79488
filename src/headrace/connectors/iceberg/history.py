"""Which data files of an Iceberg table lie between two offsets, from the table's own history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.connectors.iceberg.files import list_added_files, live_files
from headrace.errors import SourceError

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

RESET_ADVICE = (
    "reset the query (headrace reset QUERY); and let the table keep its snapshots for longer than the query may stand "
    "still"
)


@dataclass(frozen=True, kw_only=True)
class SnapshotOffset:
    """Everything up to the first `position` files of `snapshot` has been given.

    table: the table's UUID. base: the snapshot that the stream began with; None: it began with an empty table.
    whole: whether the rows that the table held at `base` are given, or only what was added after it. Every offset
    says how the stream began, so that a first batch which comes again begins at the same snapshot.
    """

    table: str
    base: int | None
    whole: bool
    snapshot: int | None
    position: int

    @classmethod
    def of(cls, given: Mapping[str, Any] | str | None) -> SnapshotOffset | None:
        """The offset of an entry of Spark's log; None where the stream had not begun."""
        facts = json.loads(given) if isinstance(given, str) else given
        return cls(**facts) if facts else None

    @property
    def beginning(self) -> SnapshotOffset:
        """Where the stream began."""
        return replace(self, snapshot=self.base, position=0)


@dataclass(kw_only=True)
class SnapshotHistory:
    """A table's snapshots as a stream of files.

    skips: the kinds of snapshots, `delete` and `overwrite`, that are passed over where they would end the query.
    """

    table: Table
    name: str
    skips: frozenset[str] = frozenset()
    _files: dict[tuple[int, bool], list[FileScanTask]] = field(default_factory=dict)

    def begin(self, starting: str, snapshot: int | None, timestamp: int | None) -> SnapshotOffset | None:
        """The first offset, before the first file; None while the table has nothing to begin with.

        A snapshot, whose rows the stream has, or a time is taken instead of the word `starting`.
        """
        current = self.table.current_snapshot()
        base, whole = (None if current is None else current.snapshot_id), False
        if snapshot is not None:
            base = self._require_snapshot(snapshot).snapshot_id
        elif timestamp is not None:
            if current is None or current.timestamp_ms < timestamp:
                return None
            base = self._last_before(timestamp)
        elif starting == "table":
            whole = True
            if base is None:
                return None
        return SnapshotOffset(table=self.table_id, base=base, whole=whole, snapshot=base, position=0)

    def advance(self, start: SnapshotOffset, limit: int | None, until: int | None) -> SnapshotOffset:
        """The offset after at most `limit` more files, none of them added after the snapshot `until`."""
        self.require_same(start)
        at = start
        for snapshot in self._way_from(start, until):
            number = None if snapshot is None else snapshot.snapshot_id
            begun = start.position if number == start.snapshot else 0
            if snapshot is not None and number != start.snapshot:
                self._require_stream(snapshot)
            there = len(self._files_of(snapshot, start)) - begun
            taken = there if limit is None else min(there, limit)
            at = replace(start, snapshot=number, position=begun + taken)
            if limit is not None:
                limit -= taken
                if limit == 0 or taken < there:
                    break
        return at

    def files(self, start: SnapshotOffset | None, end: SnapshotOffset | None) -> list[FileScanTask]:
        """The files between two offsets, in their order. Raises SourceError where the history does not reach back."""
        if end is None:
            return []
        self.require_same(end)
        start = start or end.beginning
        files: list[FileScanTask] = []
        for snapshot in self._way_from(start, end.snapshot):
            number = None if snapshot is None else snapshot.snapshot_id
            first = start.position if number == start.snapshot else 0
            last = end.position if number == end.snapshot else None
            if first != last:
                files += self._files_of(snapshot, end)[first:last]
        return files

    def ensure_available(self, start: SnapshotOffset | None, end: SnapshotOffset | None) -> None:
        """Raise SourceError where the snapshots between two offsets are no longer all there."""
        if end is not None:
            self.require_same(end)
            list(self._way_from(start or end.beginning, end.snapshot))

    def leads(self, older: int | None, newer: int) -> bool:
        """Whether one snapshot is the other or an ancestor of it."""
        way = self._back_from(self.table.metadata.snapshot_by_id(newer))
        return older in (None, newer) or any(snapshot.parent_snapshot_id == older for snapshot in way)

    def _back_from(self, at: Snapshot | None) -> Iterator[Snapshot]:
        """A snapshot and its ancestors, the newest first, as far as the table still has them."""
        while at is not None:
            yield at
            parent = at.parent_snapshot_id
            at = None if parent is None else self.table.metadata.snapshot_by_id(parent)

    def behind(self, start: SnapshotOffset | None) -> tuple[int, int, int | None]:
        """Count rows and bytes added after `start`, with the time (ms) of the first; None: all that the table has."""
        current = self.table.current_snapshot()
        if start is None:
            summary = None if current is None else current.summary
            return _number(summary, "total-records"), _number(summary, "total-files-size"), None
        self.require_same(start)
        rest = self._files_of(self._snapshot(start.snapshot), start)[start.position :]
        rows, size = sum(task.file.record_count for task in rest), sum(task.file.file_size_in_bytes for task in rest)
        since = self._snapshot(start.snapshot).timestamp_ms if rest else None
        for snapshot in list(self._way_from(start, None if current is None else current.snapshot_id))[1:]:
            if _operation(snapshot) == "append":
                since = since or snapshot.timestamp_ms
                rows += _number(snapshot.summary, "added-records")
                size += _number(snapshot.summary, "added-files-size")
        return rows, size, since

    @property
    def table_id(self) -> str:
        """The UUID that the table was given when it was created."""
        return str(self.table.metadata.table_uuid)

    def require_same(self, offset: SnapshotOffset) -> None:
        """Raise SourceError where another table has the name now."""
        if offset.table != self.table_id:
            fault = f"{self.name} is not the one that the query has read so far: it was dropped and made again"
            fix = "bring the old one back under this name, or reset the query (headrace reset QUERY)"
            raise SourceError(code="HR346", what=fault, fix=fix)

    def _files_of(self, snapshot: Snapshot | None, offset: SnapshotOffset) -> list[FileScanTask]:
        """The files that a stream with the beginning of `offset` is given of one snapshot."""
        if snapshot is None or (snapshot.snapshot_id == offset.base and not offset.whole):
            return []
        key = (snapshot.snapshot_id, snapshot.snapshot_id == offset.base)
        if key not in self._files:
            if len(self._files) > 100:
                self._files.clear()
            if key[1]:
                self._files[key] = self._all_files(snapshot)
            else:
                self._files[key] = list_added_files(self.table, snapshot) if _operation(snapshot) == "append" else []
        return self._files[key]

    def _all_files(self, snapshot: Snapshot) -> list[FileScanTask]:
        try:
            return live_files(self.table, snapshot)
        except (ValueError, NotImplementedError) as error:
            # This is how pyiceberg says that it does not know a kind of delete file.
            fault = f"the rows of {self.name} at snapshot {snapshot.snapshot_id} cannot be read: {error}"
            fix = "compact the table, so that its deletes are carried out, or begin with what is appended from now on"
            raise SourceError(code="HR355", what=fault, fix=fix) from None

    def _way_from(self, start: SnapshotOffset, until: int | None) -> Iterator[Any]:
        """The snapshots of the way from `start` to the snapshot `until`, both included, oldest first.

        None stands for the empty table. Raises SourceError where the way is broken.
        """
        way: list[Any] = []
        at = until
        while at is not None and at != start.snapshot:
            snapshot = self._snapshot(at)
            way.append(snapshot)
            at = snapshot.parent_snapshot_id
        if at != start.snapshot:
            there = start.snapshot is None or self.table.metadata.snapshot_by_id(start.snapshot) is not None
            if not there or not _is_first(way[-1]):
                raise self._no_snapshot(start.snapshot)
            fault = f"{self.name} was set back to a state before snapshot {start.snapshot}, which the query has read"
            fix = "undo that, or reset the query (headrace reset QUERY)"
            raise SourceError(code="HR343", what=fault, fix=fix)
        if at is None and way and not _is_first(way[-1]):
            raise self._no_snapshot(None)
        way.append(None if at is None else self._snapshot(at))
        yield from reversed(way)

    def _snapshot(self, number: int | None) -> Any:
        if number is None:
            return None
        snapshot = self.table.metadata.snapshot_by_id(number)
        if snapshot is None:
            raise self._no_snapshot(number)
        return snapshot

    def _no_snapshot(self, number: int | None) -> SourceError:
        which = "its first snapshots" if number is None else f"snapshot {number}"
        fault = f"{self.name} no longer has {which}, and the query needs what came there: it was expired"
        return SourceError(code="HR343", what=fault, fix=RESET_ADVICE)

    def _require_snapshot(self, number: int) -> Snapshot:
        """A snapshot that the user named."""
        for at in self._back_from(self.table.current_snapshot()):
            if at.snapshot_id == number:
                return at
        fault = f"{self.name} has no snapshot {number} in the history of its present state"
        raise SourceError(code="HR343", what=fault, fix="give starting_snapshot another, or leave it out")

    def _last_before(self, timestamp: int) -> int | None:
        """The last snapshot before a time; None where the table was empty then."""
        oldest = None
        for oldest in self._back_from(self.table.current_snapshot()):
            if oldest.timestamp_ms < timestamp:
                return oldest.snapshot_id
        if oldest is not None and not _is_first(oldest):
            fault = f"{self.name} keeps no history before {oldest.timestamp_ms}, which is after starting_timestamp"
            fix = "give a later starting_timestamp; without one the query begins with all rows of the table"
            raise SourceError(code="HR343", what=fault, fix=fix)
        return None

    def _require_stream(self, snapshot: Any) -> None:
        """Raise SourceError for a snapshot that did more than append, unless such ones are to be skipped."""
        operation = _operation(snapshot)
        if operation in ("append", "replace") or operation in self.skips:
            return
        done = "deleted rows of" if operation == "delete" else "replaced rows of"
        fault = f"snapshot {snapshot.snapshot_id} {done} {self.name}, which a stream cannot take back"
        way = f"set skip_{operation}_snapshots to continue without what it did"
        fix = f"reset the query (headrace reset QUERY), or {way}"
        raise SourceError(code="HR344", what=fault, fix=fix)


def _is_first(snapshot: Any) -> bool:
    """Whether nothing came before `snapshot`. One whose parent was expired may also say that it has none."""
    if snapshot.parent_snapshot_id is not None or (snapshot.sequence_number or 0) > 1:
        return False
    return _number(snapshot.summary, "total-data-files") == _number(snapshot.summary, "added-data-files")


def _operation(snapshot: Any) -> str:
    return "append" if snapshot.summary is None else str(snapshot.summary.operation.value)


def _number(summary: Any, key: str) -> int:
    return 0 if summary is None else int(summary[key] or 0)
