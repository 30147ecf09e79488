"""An Iceberg table as it was at the end of an earlier batch, by its own snapshots: one commit, which can be undone.

The commit brings the data files of that batch's snapshot back and takes the others out; nothing is rewritten.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.connectors.exactly_once import Conflict, take_epoch
from headrace.connectors.iceberg.batches import committing
from headrace.connectors.iceberg.files import live_entries
from headrace.connectors.iceberg.ledger import PROPERTY, TableLedger
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import Held, Session, SinkContext, SinkRewind
from headrace.errors import Finding, NothingChanged

if TYPE_CHECKING:
    from pyiceberg.table import Table

# What a snapshot says that has brought another one back.
_RESTORES = "headrace.restores"


@dataclass(frozen=True, kw_only=True)
class SnapshotAfterBatch:
    """The snapshot that the table had after a batch; without one, the first batch after it that has one, and why."""

    snapshot: Any = None
    earliest: int | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class IcebergRewind(SinkRewind):
    """A table brought back to an earlier batch; its snapshots end as the table's own rules say."""

    place: TableRef

    def earliest(self, context: SinkContext, batch: int, session: Session) -> int | None:
        with self.place.translate_errors():
            table, known = _own(self.place, context)
            if table is None or known is None:
                return None
            found = _find(table, known, context, batch)
            return batch if found.snapshot is not None else found.earliest

    def taken_back(self, context: SinkContext, batch: int, session: Session) -> Sequence[Held]:
        with self.place.translate_errors():
            table, known = _own(self.place, context)
            found = SnapshotAfterBatch() if table is None or known is None else _find(table, known, context, batch)
            if table is None or known is None or found.snapshot is None or known.batch <= batch:
                return ()
            now, then = _rows(table.current_snapshot()), _rows(found.snapshot)
            return (
                Held(count=now, what=f"rows of {self.place}, which go back to the {then:,} rows after batch {batch}"),
                Held(count=known.batch - batch, what=f"batches of {self.place} are taken back"),
            )

    def go_back(self, context: SinkContext, batch: int, session: Session) -> None:
        _tried(self.place, lambda: _rewound(self.place, context, batch))

    def undo(self, context: SinkContext, batch: int, session: Session) -> None:
        _tried(self.place, lambda: _undone(self.place, context, batch))

    def forget(self, context: SinkContext, session: Session) -> None:
        with self.place.translate_errors():
            table = self.place.find()
            if table is not None and _kept(context) in table.metadata.properties:
                with table.transaction() as transaction:
                    transaction.remove_properties(_kept(context))


def _rewound(place: TableRef, context: SinkContext, batch: int) -> None:
    table, known = _own(place, context)
    if table is None or known is None or known.batch <= batch:
        return
    found = _find(table, known, context, batch)
    if found.snapshot is None:
        fix = "" if found.earliest is None else f"go back to batch {found.earliest} at most; or "
        fix += f"recompute the result: headrace rebuild {context.query}"
        raise NothingChanged(
            Finding(code="HR580", what=f"{place} cannot go back to batch {batch}: {found.why}", fix=fix)
        )
    lines = tuple(line for line in known.lines if line.batch <= batch)
    now = replace(known, batch=batch, lines=lines, epoch=uuid.uuid4().hex)
    current = table.current_snapshot()
    assert current is not None, "a batch was found among its snapshots"
    kept = json.dumps({"snapshot": current.snapshot_id, "batch": batch, "ledger": known.text})
    _commit(table, now, {_kept(context): kept}, found.snapshot)


def _undone(place: TableRef, context: SinkContext, batch: int) -> None:
    table, known = _own(place, context)
    text = None if table is None else table.metadata.properties.get(_kept(context))
    if table is None or known is None or not text:
        return
    facts = json.loads(text)
    if facts["batch"] != batch:
        return
    if known.batch != batch:
        what = f"{place} has batches of query '{context.query}' after batch {batch} again"
        raise NothingChanged(Finding(code="HR583", what=what, fix="go back to that batch once more, or keep them"))
    former = table.metadata.snapshot_by_id(facts["snapshot"])
    if former is None:
        what = f"{place} no longer has the snapshot that it had before it went back to batch {batch}"
        raise NothingChanged(Finding(code="HR583", what=what, fix="run the query: it reads the removed batches again"))
    _commit(table, replace(TableLedger.loads(facts["ledger"]), epoch=uuid.uuid4().hex), {_kept(context): ""}, former)


def _commit(table: Table, ledger: TableLedger, further: dict[str, str], wanted: Any) -> None:
    """Let the table have the files of the snapshot `wanted`. Raises Conflict."""
    from pyiceberg.exceptions import CommitFailedException

    now, then = _files(table, table.current_snapshot()), _files(table, wanted)
    try:
        with committing(table, ledger, further, properties={_RESTORES: str(wanted.snapshot_id)}) as update:
            producer: Any = update.overwrite() if now.keys() - then.keys() else update.merge_append()
            with producer:
                for path in sorted(now.keys() - then.keys()):
                    producer.delete_data_file(now[path])
                for path in sorted(then.keys() - now.keys()):
                    producer.append_data_file(then[path])
    except CommitFailedException as error:
        raise Conflict("another writer was quicker") from error


def _find(table: Table, known: TableLedger, context: SinkContext, batch: int) -> SnapshotAfterBatch:
    """The newest snapshot of `batch` on the way back from the present one, past what earlier rewinds have taken off."""
    at, passed = table.current_snapshot(), known.batch
    while at is not None:
        told = at.summary
        if told is None or not _is_of(told, context):
            if told is None or told.operation.value != "replace":
                why = f"another writer has changed it after batch {batch}, in snapshot {at.snapshot_id}"
                return SnapshotAfterBatch(earliest=passed, why=why)
        else:
            number = int(told["headrace.batch"] or -1)
            if number == batch:
                if _has_deletes(table, at) or _has_other_partitions(table, at):
                    return SnapshotAfterBatch(
                        earliest=passed, why="its partitions were changed, or other writers have deleted rows"
                    )
                return SnapshotAfterBatch(snapshot=at)
            if number < batch:
                break
            passed = number
        before = at.parent_snapshot_id if told is None or not told[_RESTORES] else int(told[_RESTORES] or 0)
        at = None if before is None else table.metadata.snapshot_by_id(before)
    return SnapshotAfterBatch(earliest=passed, why=f"its snapshot of batch {batch} has expired")


def _is_of(told: Any, context: SinkContext) -> bool:
    return bool(told["headrace.query"] == context.query and told["headrace.generation"] == str(context.generation))


def _has_other_partitions(table: Table, snapshot: Any) -> bool:
    files = (*_files(table, snapshot).values(), *_files(table, table.current_snapshot()).values())
    return any(file.spec_id != table.metadata.default_spec_id for file in files)


def _files(table: Table, snapshot: Any) -> dict[str, Any]:
    if snapshot is None:
        return {}
    return {entry.data_file.file_path: entry.data_file for entry in live_entries(table, snapshot)}


def _has_deletes(table: Table, snapshot: Any) -> bool:
    from pyiceberg.manifest import ManifestContent

    return any(manifest.content != ManifestContent.DATA for manifest in snapshot.manifests(table.io))


def _rows(snapshot: Any) -> int:
    return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)


def _tried(place: TableRef, change: Any) -> None:
    what = f"others commit to {place} all the time"
    fix = "let other writers leave pauses; then give the command again"
    with place.translate_errors():
        take_epoch(change, Finding(code="HR587", what=what, fix=fix))


def _kept(context: SinkContext) -> str:
    """The property that keeps the ledger from before a rewind."""
    return f"{PROPERTY}.g{context.generation}.rewound"


def _own(place: TableRef, context: SinkContext) -> tuple[Table | None, TableLedger | None]:
    table = place.find()
    known = None if table is None else TableLedger.of(table)
    return (table, known) if known is not None and known.is_of(context) else (None, None)
