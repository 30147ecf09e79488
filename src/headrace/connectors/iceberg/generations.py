"""A table that becomes another's, or what it was: set aside, handed on, exchanged, renamed, taken over, brought back.

A table is set aside by renaming it in its catalog; its files stay where they are. It is brought back to an earlier
batch by one commit, with the data files of that batch's snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.connectors.exactly_once import KeptLine, lake
from headrace.connectors.iceberg.batches import PROPERTY, TableLedger, committing, enter, exchange, own_table, rows_of
from headrace.connectors.iceberg.files import live_entries
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import Held, Session, SinkAdoption, SinkContext, SinkRename, SinkReset, SinkSwap
from headrace.errors import NothingChanged, SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# What a snapshot says that has brought another one back.
_RESTORES = "headrace.restores"
_REWOUND = ".rewound"
Own: TypeAlias = "tuple[Table, TableLedger]"
# What Iceberg's own streaming sink for Spark says in each snapshot. Source: SparkWrite of Iceberg.
_QUERY, _BATCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


@dataclass(frozen=True, kw_only=True)
class IcebergReset(SinkReset):
    """A table set aside, brought back, discarded, or handed to the next generation; each keeps its own ledger."""

    place: TableRef

    def row_counts(self, context: SinkContext, session: Session) -> tuple[Held, ...]:
        with self.place.translate_errors():
            own = own_table(self.place, context)
            current = None if own is None else own[0].current_snapshot()
            return () if current is None else (Held(count=rows_of(current) or 0, what=f"rows of {self.place}"),)

    def hand_over(self, context: SinkContext, generation: int, session: Session) -> None:
        with self.place.translate_errors():
            lake.among_writers(str(self.place), lambda: self._hand_over_ledger(context, generation))

    def _hand_over_ledger(self, context: SinkContext, generation: int) -> None:
        own = own_table(self.place, context)
        if own is None:
            return
        table, ledger = own
        text = table.metadata.properties.get(_former(generation))
        taken = replace(ledger, generation=generation, lines=()) if text is None else TableLedger.loads(text)
        enter(table, taken.with_new_epoch(), {_former(context.generation): ledger.dumps()})

    def archive(self, context: SinkContext, session: Session) -> None:
        with self.place.translate_errors():
            if own_table(self.place, context) is not None:
                self.place.connect().rename_table(self.place.table, lake.name_aside(self.place.table, context))

    def restore(self, context: SinkContext, session: Session) -> None:
        place = self.place
        with place.translate_errors():
            catalog, kept = place.connect(), lake.name_aside(place.table, context)
            if not catalog.table_exists(kept):
                return
            newer = place.find()
            if newer is not None:
                ledger, rows = TableLedger.of_table(newer), rows_of(newer.current_snapshot())
                if ledger is None or ledger.query_id != context.query_id or ledger.batch >= 0 or rows != 0:
                    fault = f"{place} has rows again, so that the former ones cannot be brought back"
                    fix = "look whose they are; drop the table if it is not needed, and give the command again"
                    raise NothingChanged(code="HR583", what=fault, fix=fix)
                catalog.drop_table(place.table)
            catalog.rename_table(kept, place.table)

    def discard(self, context: SinkContext, session: Session) -> None:
        with self.place.translate_errors():
            catalog, kept = self.place.connect(), lake.name_aside(self.place.table, context)
            if catalog.table_exists(kept):
                catalog.purge_table(kept)
            _remove_property(self.place, _former(context.generation))


@dataclass(frozen=True, kw_only=True)
class IcebergSwap(SinkSwap):
    """The table of a rebuild put in place, and taken back."""

    place: TableRef

    def swap_in(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        place = self.place
        with place.translate_errors():
            is_own = own_table(place, context) is not None
            if not is_own and place.find() is not None and place.connect().table_exists(lake.shadow_name(place.table)):
                fault = f"{place} is not the result of generation {context.generation} of query '{context.query}'"
                fix = "look whose it is; or write to another table"
                raise NothingChanged(code="HR587", what=fault, fix=fix)
            self._renames(context).swap_in()

    def swap_out(self, context: SinkContext, rebuilt: SinkContext, session: Session) -> None:
        with self.place.translate_errors():
            self._renames(context).swap_out()

    def _renames(self, context: SinkContext) -> lake.Renames:
        catalog = self.place.connect()
        exists, rename = catalog.table_exists, catalog.rename_table
        return lake.Renames(table=self.place.table, context=context, exists=exists, rename=rename)


def _former(generation: int) -> str:
    """The property that keeps the ledger of a generation while the table is another's."""
    return f"{PROPERTY}.g{generation}"


def _remove_property(place: TableRef, name: str) -> None:
    table = place.find()
    if table is not None and name in table.metadata.properties:
        with table.transaction() as transaction:
            transaction.remove_properties(name)


@dataclass(frozen=True, kw_only=True)
class IcebergRename(SinkRename):
    """A table under another name; `renamed_from`: what it was called."""

    place: TableRef
    renamed_from: str = ""

    def rename_table(self, context: SinkContext, session: Session) -> None:
        place, former = self.place, self.renamed_from
        old = replace(place, table=former)
        with place.translate_errors():
            there = place.find()
            if own_table(old, context) is None:
                if there is None:
                    fault = f"neither {place} nor '{former}', from which it is renamed, is the query's"
                    raise NothingChanged(code="HR549", what=fault, fix="restore the table, or correct its name")
                return
            if there is not None:
                fault = f"{old} cannot be renamed to '{place.table}', which is there as well"
                fix = f"drop or rename the one that is not the result of query '{context.query}', and start again"
                raise NothingChanged(code="HR549", what=fault, fix=fix)
            place.with_namespace().rename_table(former, place.table)


@dataclass(frozen=True, kw_only=True)
class IcebergAdoption(SinkAdoption):
    """A table that another program has written; `find` gives it for a result, and raises where it does not fit."""

    place: TableRef
    find: Callable[[DataFrame, SinkContext], Table]

    def foreign_rows(self, frame: DataFrame, context: SinkContext) -> tuple[Held, ...]:
        with self.place.translate_errors():
            table = self.find(frame, context)
            self._require_free(table, context)
            recorded = rows_of(table.current_snapshot())
            count = table.scan().count() if recorded is None else recorded
            return (Held(count=count, what=f"rows of {self.place}"),)

    def foreign_batch(self, frame: DataFrame, context: SinkContext) -> int | None:
        with self.place.translate_errors():
            identity = Checkpoint(context.checkpoint).id
            batches = [
                int(snapshot.summary[_BATCH] or -1)
                for snapshot in self.find(frame, context).snapshots()
                if snapshot.summary is not None and identity and snapshot.summary[_QUERY] == identity
            ]
            return max(batches, default=None)

    def take_over(self, frame: DataFrame, context: SinkContext, batch: int | None) -> None:
        with self.place.translate_errors():
            self.find(frame, context)
            lake.among_writers(str(self.place), lambda: self._enter_ledger(frame.schema, context, batch))

    def _enter_ledger(self, schema: StructType, context: SinkContext, batch: int | None) -> None:
        table = self.place.open()
        self._require_free(table, context)
        lines = () if batch is None else (KeptLine(batch=batch, checkpoint=Checkpoint(context.checkpoint).id or ""),)
        there = TableLedger.of_table(table, context)
        if there is None or there.lines != lines:
            enter(table, TableLedger.begin(context, schema.json(), lines))

    def _require_free(self, table: Table, context: SinkContext) -> None:
        """Raise SinkError where batches of a query of Headrace are in the table."""
        ledger, identity = TableLedger.of_table(table), Checkpoint(context.checkpoint).id
        if ledger is None or ledger.batch < 0 or (ledger.is_of(context) and ledger.checkpoint == identity):
            return
        fault = f"{self.place} has batches of generation {ledger.generation} of query '{ledger.query}' already, up to "
        fix = "reset that query first (headrace reset QUERY), if the former job is to continue in its place"
        raise SinkError(code="HR580", what=f"{fault}{ledger.batch}", fix=fix)


@dataclass(frozen=True, kw_only=True)
class IcebergRewind(lake.VersionRewind[Own, Any]):
    """A table brought back to an earlier batch; its snapshots end as the table's own rules say."""

    place: TableRef

    def translate_errors(self) -> AbstractContextManager[None]:
        return self.place.translate_errors()

    def current(self, context: SinkContext, session: Session) -> Own | None:
        return own_table(self.place, context)

    def last(self, present: Own) -> int:
        return present[1].batch

    def reach(self, present: Own, context: SinkContext, batch: int) -> lake.Reached[Any]:
        table, ledger = present
        at, passed = table.current_snapshot(), ledger.batch
        while at is not None:
            summary = at.summary
            whose = None if summary is None else (summary["headrace.query_id"], summary["headrace.generation"])
            if summary is None or whose != (context.query_id, str(context.generation)):
                if summary is None or summary.operation.value != "replace":
                    why = f"another writer has changed it after batch {batch}, in snapshot {at.snapshot_id}"
                    return lake.Reached(earliest=passed, why=why)
            else:
                number = int(summary["headrace.batch"] or -1)
                if number == batch:
                    files = (*_files(table, at).values(), *_files(table, table.current_snapshot()).values())
                    has_other_partitions = any(file.spec_id != table.metadata.default_spec_id for file in files)
                    if has_other_partitions or _has_deletes(table, at):
                        why = "its partitions were changed, or other writers have deleted rows"
                        return lake.Reached(earliest=passed, why=why)
                    return lake.Reached(version=at)
                if number < batch:
                    break
                passed = number
            restored = None if summary is None else summary[_RESTORES]
            before = int(restored) if restored else at.parent_snapshot_id
            at = None if before is None else table.metadata.snapshot_by_id(before)
        return lake.Reached(earliest=passed, why=f"its snapshot of batch {batch} has expired")

    def count(self, present: Own, version: Any) -> int:
        return rows_of(version or present[0].current_snapshot()) or 0

    def restore(self, present: Own, version: Any, context: SinkContext, batch: int) -> None:
        table, ledger = present
        current = table.current_snapshot()
        assert current is not None, "a batch was found among its snapshots"
        lines = tuple(line for line in ledger.lines if line.batch <= batch)
        lines = lines or (KeptLine(batch=batch, checkpoint=ledger.checkpoint),)
        former = json.dumps({"snapshot": current.snapshot_id, "batch": batch, "ledger": ledger.dumps()})
        _commit(table, replace(ledger, lines=lines).with_new_epoch(), {_rewound(context): former}, version)

    def is_rewound(self, present: Own, context: SinkContext, batch: int) -> bool:
        text = present[0].metadata.properties.get(_rewound(context), "")
        return text != "" and json.loads(text)["batch"] == batch

    def bring_back(self, present: Own, context: SinkContext, batch: int) -> None:
        table = present[0]
        facts = json.loads(table.metadata.properties[_rewound(context)])
        former = table.metadata.snapshot_by_id(facts["snapshot"])
        if former is None:
            fault = f"{self.place} no longer has the snapshot that it had before it went back to batch {batch}"
            fix = "run the query: it reads the removed batches again"
            raise NothingChanged(code="HR583", what=fault, fix=fix)
        _commit(table, TableLedger.loads(facts["ledger"]).with_new_epoch(), {_rewound(context): ""}, former)

    def forget_former(self, context: SinkContext, session: Session) -> None:
        _remove_property(self.place, _rewound(context))


def _rewound(context: SinkContext) -> str:
    """The property that keeps the ledger from before a rewind."""
    return f"{_former(context.generation)}{_REWOUND}"


def _commit(table: Table, ledger: TableLedger, further: dict[str, str], wanted: Any) -> None:
    """Restore the files of the snapshot `wanted`. Raises Conflict."""
    now, then = _files(table, table.current_snapshot()), _files(table, wanted)
    with committing(table, ledger, further, properties={_RESTORES: str(wanted.snapshot_id)}) as update:
        old = [now[path] for path in sorted(now.keys() - then.keys())]
        exchange(update, old, [then[path] for path in sorted(then.keys() - now.keys())])


def _files(table: Table, snapshot: Any) -> dict[str, Any]:
    if snapshot is None:
        return {}
    return {entry.data_file.file_path: entry.data_file for entry in live_entries(table, snapshot)}


def _has_deletes(table: Table, snapshot: Any) -> bool:
    from pyiceberg.manifest import ManifestContent

    return any(manifest.content != ManifestContent.DATA for manifest in snapshot.manifests(table.io))
