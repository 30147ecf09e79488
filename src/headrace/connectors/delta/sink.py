"""Write the result into a Delta table, exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from headrace.checkpoint import Checkpoint
from headrace.connectors.delta import ledger
from headrace.connectors.delta.batches import DeltaStore, TableSchema
from headrace.connectors.delta.generations import (
    DeltaAdoption,
    DeltaRename,
    DeltaReset,
    DeltaRewind,
    DeltaSwap,
    OfDelta,
    beside,
)
from headrace.connectors.delta.ledger import DeltaLedger, FirstVersion, Progress, own_files
from headrace.connectors.delta.log import local
from headrace.connectors.delta.source import FAILURES, one_writer
from headrace.connectors.delta.table import NAME, DeltaTable, State, at_path, named, require_delta
from headrace.connectors.exactly_once import (
    BatchWriter,
    KeptLine,
    misfits,
    require_lines_fit,
    require_own_generation,
)
from headrace.connectors.exactly_once.lake import among_writers, no_result, not_there
from headrace.connectors.not_asked import findings_of
from headrace.contract import (
    OUTPUT_MODES,
    Failure,
    Identity,
    OptionError,
    OutputMode,
    ProjectPath,
    Sink,
    SinkContext,
    SinkFacts,
    SinkLocation,
    Snapshot,
    canonical_path,
    canonical_table,
)
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Ability = TypeVar("_Ability", bound=OfDelta)


@dataclass(frozen=True, kw_only=True)
class DeltaSink(Sink):
    """A table of Delta Lake, by its `path` or by the name `table` in Spark's own catalog; each batch is one version.

    Source: Delta Lake's documentation, "Table streaming reads and writes". Append mode adds the rows, complete mode
    replaces all of them, update mode replaces those with the same key. The table is made if it is not there; if it is,
    its columns must be those of the result.

    With each batch the table takes a transaction identifier of the query and its generation, whose number is made of
    the driver's epoch and the batch. Delta's own streaming sink goes by the id of the checkpoint, which a new
    checkpoint does not share and which is the same for two drivers; so a batch would come in twice after the one, and
    an older driver could continue beside the other.

    renamed_from: the name that the table had before: it is renamed at the next start.
    key: the columns that identify a row, for update mode; NULL is a value like others.
    partition_by: the columns that a new table is partitioned by.
    on_schema_change: a column that the table lacks is an error before start (refuse), or is added (add).
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset(OUTPUT_MODES), transactional=True, idempotent=True, shares_appends=True, adds_files=True
    )
    jars: ClassVar[tuple[str, ...]] = ("delta",)
    failures: ClassVar[tuple[Failure, ...]] = FAILURES
    path: ProjectPath | None = None
    table: str | None = None
    renamed_from: str = ""
    key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    on_schema_change: Literal["refuse", "add"] = "refuse"

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        if (self.path is None) == (self.table is None):
            what = "path and table are both given" if self.path is not None else "neither path nor table is given"
            yield OptionError(what=what, fix="give one of the two")
        if self.table is not None and NAME.fullmatch(self.table) is None:
            what = f"'{self.table}' is no name of a table in Spark's own catalog"
            fix = "write table or database.table, of letters, digits and _; or give the table's path"
            yield OptionError(what=what, fix=fix)
        if self.renamed_from and self.path is not None:
            what = f"renamed_from is given, and the Delta table '{self.path}' has no name but its directory"
            fix = "move the directory by hand and give its new path without renamed_from: its ledger lies in it"
            yield OptionError(what=what, fix=fix)
        elif self.renamed_from and (self.renamed_from == self.table or NAME.fullmatch(self.renamed_from) is None):
            what = f"table '{self.table}' cannot be renamed from '{self.renamed_from}'"
            yield OptionError(what=what, fix="give renamed_from: the name that it had before")
        yield from one_writer(self.path)
        if mode == "update" and not self.key:
            what = "update mode into a Delta table needs a key, to find the row to replace"
            yield OptionError(code="HR403", what=what, fix="give key: the columns that identify a row of the result")
        for option, names in (("key", self.key), ("partition_by", self.partition_by)):
            if len(set(names)) != len(names):
                yield OptionError(what=f"{option} names a column twice", fix="name each column once")

    def open(self, frame: DataFrame, context: SinkContext) -> BatchWriter[DataFrame]:
        """Make the table or compare it with the result, see that it takes this query's batches, and fence others."""
        spark = frame.sparkSession
        require_delta(spark, SinkError)
        form = self._fitting_schema(frame, context)
        table = self._find(spark)
        if table is None:
            require_lines_fit(context, self._place, ())
            self._require_empty()
            form.create(spark, self._sql_name, context)
            table = self._find(spark)
            assert table is not None, "it was made a moment ago"
        added = form.additions(table.now(), self._name, context, adds=self.on_schema_change == "add")
        self._require_ours(table.now(), context)
        epoch, last = among_writers(self._name, lambda: self._enter(table, context), then="start again")
        store = DeltaStore(
            location=table.location, name=self._name, key=self.key, context=context, epoch=epoch, last=last, added=added
        )
        return BatchWriter(store=store)

    @property
    def location(self) -> SinkLocation:
        return SinkLocation(name="", systems=(self._place,), shown=f"Delta table '{self._place}'", ledger=True)

    def identity(self) -> Identity:
        if self.path is None:
            return {"system": "catalog", "table": canonical_table(str(self.table)), "format": "delta"}
        return {"system": "delta", "path": canonical_path(self.path)}

    def check_result(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        yield from self._table_schema(frame).incompatibilities(context)

    def check_connection(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        try:
            if (table := self._find(frame.sparkSession)) is None:
                yield from misfits(context, self._place, tuple)
                return
            adds = self.on_schema_change == "add"
            self._table_schema(frame).additions(table.now(), self._name, context, adds=adds)
            self._require_ours(table.now(), context)
            yield from misfits(context, self._place, lambda: self._lines(table.now(), context))
        except SinkError as error:
            yield from findings_of(error)

    def _table_schema(self, frame: DataFrame) -> TableSchema:
        return TableSchema(schema=frame.schema, key=self.key, partition_by=self.partition_by)

    def _fitting_schema(self, frame: DataFrame, context: SinkContext) -> TableSchema:
        form = self._table_schema(frame)
        if found := list(form.incompatibilities(context)):
            raise SinkError(found)
        return form

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        """The rows and the last batch of one version, without the rows of other queries that append to the table."""
        require_delta(spark, SinkError)
        table = self._find(spark)
        state = None if table is None else table.now()
        own = None if state is None else ledger.progress(context, state.txn_ids)
        if state is None or own is None or own.batch is None:
            raise no_result(self._name, context)
        files = own_files(state, context, self._name)
        rows = state.rows() if files is None else state.rows_of(files)
        return Snapshot(rows=rows, batch=own.batch, key=tuple(self.key))

    @property
    def ledger(self) -> DeltaLedger:
        return DeltaLedger(seen=self._seen)

    @property
    def rename(self) -> DeltaRename:
        former = replace(self, table=self.renamed_from, renamed_from="") if self.renamed_from else None
        return self._of(DeltaRename, renamed_from=self.renamed_from, former=former)

    @property
    def reset(self) -> DeltaReset:
        return self._of(DeltaReset, droppable=True)

    @property
    def rewind(self) -> DeltaRewind:
        return self._of(DeltaRewind)

    @property
    def adoption(self) -> DeltaAdoption:
        return DeltaAdoption(find=self._foreign, name=self._name, key=self.key, takes_over=True, tells_batches=True)

    @property
    def swap(self) -> DeltaSwap | None:
        if self.path is not None and local(self.path) is None:
            return None
        path, table = beside(self.path, self.table)
        return self._of(DeltaSwap, beside=replace(self, path=path, table=table, renamed_from=""))

    def _of(self, kind: type[_Ability], **more: Any) -> _Ability:
        return kind(find=self._find, name=self._name, path=self.path, table=str(self.table), **more)

    def _foreign(self, frame: DataFrame, context: SinkContext) -> DeltaTable:
        """The table that another program has written for the result `frame`. Raises SinkError where it does not fit."""
        require_delta(frame.sparkSession, SinkError)
        form = self._fitting_schema(frame, context)
        table = self._find(frame.sparkSession)
        if table is None:
            raise not_there(self._name, context)
        form.additions(table.now(), self._name, context, adds=False)
        return table

    def _seen(self) -> State | None:
        """The table as it is now; None where there is none, or no session to look with."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is None:
            return None
        spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        with suppress(SinkError):
            require_delta(spark, SinkError)
            table = self._find(spark)
            return None if table is None else table.now()
        return None

    # ------------------------------------------------------------------------------------------------- the table

    @property
    def _name(self) -> str:
        return f"the Delta table '{self._place}'"

    @property
    def _place(self) -> str:
        return str(self.table if self.path is None else self.path)

    @property
    def _sql_name(self) -> str:
        if self.path is None:
            return str(self.table)
        place = local(self.path)
        return f"delta.`{str(self.path if place is None else place.absolute()).replace('`', '``')}`"

    def _find(self, spark: SparkSession) -> DeltaTable | None:
        """The table, None if there is none. Raises SinkError for something else of its name."""
        if self.path is not None:
            return at_path(spark, self.path, SinkError)
        parts = str(self.table).removeprefix("spark_catalog.").split(".")
        if len(parts) == 2 and not spark.catalog.databaseExists(parts[0]):
            what = f"the catalog has no database '{parts[0]}' for table '{self.table}'"
            raise SinkError(code="HR419", what=what, fix=f"make it first: CREATE DATABASE {parts[0]}")
        found, kind = named(spark, str(self.table), SinkError)
        if found is None and kind:
            what = f"'{self.table}' is {kind} and no Delta table"
            raise SinkError(code="HR419", what=what, fix="give the table another name")
        return found

    def _require_empty(self) -> None:
        place = None if self.path is None else local(self.path)
        if place is not None and place.exists() and (not place.is_dir() or _holds_data(place)):
            what = f"'{place}' holds files that are no Delta table"
            raise SinkError(code="HR407", what=what, fix="write to an empty directory")

    def _require_ours(self, state: State, context: SinkContext) -> None:
        """Rows of somebody else would be replaced, or those of an older generation be there twice."""
        known, txn_ids = ledger.progress_of_all(state.txn_ids), state.txn_ids
        own = known.get((context.query, context.generation))
        others = {name for (name, _), each in known.items() if name != context.query and each.batch is not None}
        alone = {name for name, number in known if name in others and ledger.app(name, number, ledger.ALONE) in txn_ids}
        older = [number for (name, number), each in known.items() if name == context.query and each.batch is not None]
        begun = (own is not None and own.batch is not None) or ledger.is_handed_over(context, txn_ids)
        what = ""
        if strangers := ledger.other_applications(context, txn_ids):
            what = f"{self._name} has batches of a query '{context.query}' of another project ({min(strangers)})"
        elif own == ledger.GONE:
            what = f"{self._name} knows the batches of query '{context.query}' by another name now"
        elif context.mode != "append" and others:
            what = f"{self._name} already holds the result of query '{min(others)}'"
        elif alone:
            what = f"{self._name} belongs to query '{min(alone)}', which changes its rows"
        elif not begun and older and state.has_rows:
            require_own_generation(self._name, context, max(older))
        elif not begun and context.mode != "append" and state.has_rows:
            what = f"{self._name} already holds rows that no query wrote"
        if what:
            fix = "write to another table, or delete the rows of this one first"
            raise SinkError(code="HR407", what=what, fix=fix)

    @staticmethod
    def _lines(state: State, context: SinkContext) -> list[KeptLine] | None:
        """The ledger's lines; None of a clone, which has the rows of a table and nothing of its ledger."""
        known = ledger.own_mark(context) in state.txn_ids or not state.has_rows
        return ledger.lines(state, context) if known else None

    def _enter(self, table: DeltaTable, context: SinkContext) -> tuple[int, KeptLine | None]:
        """Enter the start into the table as it is now. Raises Conflict where a batch of the query has come in since."""
        state = table.now()
        txn_ids = state.txn_ids
        kept = self._lines(state, context)
        lines = kept or []
        require_lines_fit(context, self._place, lines, begun=kept is not None)
        self._require_ours(state, context)
        last, begun = ledger.progress(context, txn_ids), None
        if ledger.own_mark(context, ledger.BEGIN) not in txn_ids:
            begun = FirstVersion(state.version, state.has_rows and not ledger.is_handed_over(context, txn_ids))
        entered = ledger.start_marks(context, Progress(last.epoch + 1, last.batch), begun)
        for (name, number), each in ledger.progress_of_all(txn_ids).items():
            if name == context.query and number != context.generation and not each.is_closed:
                entered[ledger.app(name, number)] = each.closed().number
        identity = Checkpoint(context.checkpoint).id
        if identity is not None:
            entered[ledger.own_mark(context, ledger.CHECKPOINT, identity)] = 1
        state.enter(entered)
        return last.epoch + 1, lines[-1] if lines else None


def _holds_data(place: Path) -> bool:
    return any(not name.startswith(("_", ".")) for _, _, names in os.walk(place) for name in names)
