"""Write the result into a Delta table, exactly once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace import contract
from headrace.checkpoint import Checkpoint
from headrace.connectors.delta import ledger
from headrace.connectors.delta.batches import DeltaStore, find_refused_values
from headrace.connectors.delta.changes import DeltaChangeStore, with_stored_columns
from headrace.connectors.delta.generations import DeltaAdoption, DeltaRename, DeltaReset, DeltaRewind, DeltaSwap
from headrace.connectors.delta.ledger import DeltaLedger, FirstVersion, Progress, own_rows, own_state
from headrace.connectors.delta.source import FAILURES
from headrace.connectors.delta.table import DeltaPlace, DeltaTable, State
from headrace.connectors.exactly_once import BatchWriter, KeptLine, misfits, require_lines_fit, require_own_generation
from headrace.connectors.exactly_once.changes import TableChanges
from headrace.connectors.exactly_once.lake import among_writers, no_result, not_there, shadow_name
from headrace.connectors.result_findings import findings_of, missing_columns, partition_findings, same_names
from headrace.connectors.spark_catalog import is_name, quote
from headrace.connectors.spark_files import aside
from headrace.errors import Finding, SinkError
from headrace.spark.messages.refusals import first_sentence
from headrace.storage.location import scheme_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# What Delta does not take in the name of a column.
_NO_COLUMN = re.compile(r"[ ,;{}()\n\t=]")


@dataclass(frozen=True, kw_only=True)
class DeltaSink(contract.Sink):
    """Write a table of Delta Lake, by its `path` or by the name `table` in Spark's catalog; each batch is one version.

    Source: Delta Lake's documentation, "Table streaming reads and writes". Append mode adds the rows, complete mode
    replaces all of them, update mode replaces those with the same key. The table is made if it is not there; if it is,
    its columns must be those of the result.

    With each batch the table takes a transaction identifier of the query and its generation, whose number is made of
    the driver's epoch and the batch. Delta's own streaming sink goes by the id of the checkpoint, which a new
    checkpoint does not share and which is the same for two drivers; so a batch would come in twice after the one, and
    an older driver could continue next to the newer one.

    renamed_from: the name that the table had before: it is renamed at the next start.
    key: the columns that identify a row, for update mode; NULL is a value like others.
    partition_by: the columns that a new table is partitioned by.
    on_schema_change: a column that the table lacks is an error before start (refuse), or is added (add).
    """

    facts: ClassVar[contract.SinkFacts] = contract.SinkFacts(
        modes=frozenset(contract.OUTPUT_MODES),
        transactional=True,
        idempotent=True,
        shares_appends=True,
        adds_files=True,
    )
    jars: ClassVar[tuple[str, ...]] = ("delta",)
    failures: ClassVar[tuple[contract.Failure, ...]] = FAILURES
    path: contract.ProjectPath | None = None
    table: str | None = None
    renamed_from: str = ""
    key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    on_schema_change: Literal["refuse", "add"] = "refuse"
    # How it applies change data; None: the rows of a batch are its rows.
    applies: contract.ChangeOptions | None = field(default=None, init=False, repr=False, compare=False)

    def problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        yield from self._place.problems()
        if self.renamed_from and self.path is not None:
            fault = f"renamed_from is given, and the Delta table '{self.path}' has no name but its directory"
            fix = "move the directory by hand and give its new path without renamed_from: its ledger lies in it"
            yield contract.OptionError(what=fault, fix=fix)
        elif self.renamed_from and (self.renamed_from == self.table or not is_name(self.renamed_from)):
            fault = f"table '{self.table}' cannot be renamed from '{self.renamed_from}'"
            yield contract.OptionError(what=fault, fix="give renamed_from: the name that it had before")
        if self.path is not None and scheme_of(self.path) == "s3a":
            # Delta's own way there looks first whether a version is there, then puts it.
            yield contract.OptionError(
                code="HR840",
                what=f"{self._place} is in a bucket, where Delta keeps only writers of one driver from taking the same "
                "version of it, unless spark.delta.logStore.s3a.impl says otherwise",
                fix="let no other application write the table; or set spark.delta.logStore.s3a.impl to a log store for "
                "several, as Delta's documentation describes, in all of them",
                severity="note",
            )
        if mode == "update" and not self.key:
            fault = "update mode into a Delta table needs a key, to find the row to replace"
            yield contract.OptionError(
                code="HR403", what=fault, fix="give key: the columns that identify a row of the result"
            )
        if self.applies is not None and self.applies.scd_type == 2:
            fault = "stored_as_scd_type 2 into a Delta table: a late change makes the history of a key again, from all "
            fault += "its changes, which would be kept a second time below the table"
            fix = "set stored_as_scd_type to 1, and read former rows by Delta's own versions; or write to postgres, "
            yield contract.OptionError(code="HR298", what=fault, fix=f"{fix}mysql or sqlite")
        for option, names in (("key", self.key), ("partition_by", self.partition_by)):
            if len(set(names)) != len(names):
                yield contract.OptionError(what=f"{option} names a column twice", fix="name each column once")

    def open(self, frame: DataFrame, context: contract.SinkContext) -> BatchWriter[DataFrame]:
        """Make the table or compare it with the result, see that it takes this query's batches, and fence others."""
        place, spark = self._place, frame.sparkSession
        frame = self._with_stored_columns(frame)
        self._require_result(frame, context)
        table = place.find(spark)
        if table is None:
            require_lines_fit(context, place.text, ())
            self._require_empty()
            self._create_table(frame, context)
            table = place.find(spark)
            assert table is not None, "it was made a moment ago"
        added = self._missing_columns(table.now(), frame.schema, context, adds=self.on_schema_change == "add")
        self._require_ours(table.now(), context)
        epoch, last = among_writers(str(place), lambda: self._enter(table, context), then="start again")
        facts: dict[str, Any] = {"location": table.location, "name": str(place), "key": self.key, "context": context}
        facts |= {"epoch": epoch, "last": last, "added": added}
        changes = self.applies
        return BatchWriter(store=DeltaStore(**facts) if changes is None else DeltaChangeStore(**facts, options=changes))

    @property
    def location(self) -> contract.SinkLocation:
        place = self._place.text
        return contract.SinkLocation(name="", systems=(place,), shown=f"Delta table '{place}'", ledger=True)

    def identity(self) -> contract.Identity:
        return self._place.identity()

    def check_result(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        names, query = self._with_stored_columns(frame).columns, context.query
        yield from same_names(names, query)
        for name in names:
            if _NO_COLUMN.search(name):
                problem = f"the result of query '{query}' has a column '{name}': Delta takes no ,;{{}}()= nor blanks"
                yield Finding(code="HR404", what=problem, fix="rename it in the query's last select")
        yield from missing_columns("key", self.key, names, query)
        yield from partition_findings(self.partition_by, names, query)

    def refused_values(self, frame: DataFrame) -> Iterator[contract.RefusedValue]:
        table = self._place.find(frame.sparkSession)
        return find_refused_values(frame, self.partition_by if table is None else table.now().partitions)

    def check_connection(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        try:
            place = self._place
            if (table := place.find(frame.sparkSession)) is None:
                yield from misfits(context, place.text, tuple)
                return
            adds = self.on_schema_change == "add"
            self._missing_columns(table.now(), self._with_stored_columns(frame).schema, context, adds=adds)
            self._require_ours(table.now(), context)
            yield from misfits(context, place.text, lambda: self._lines(table.now(), context))
        except SinkError as error:
            yield from findings_of(error)

    def read_back(self, spark: SparkSession, context: contract.SinkContext) -> contract.Snapshot:
        """The rows and the last batch of one version, without the rows of other queries that append to the table."""
        own = own_state(self._place, spark, context)
        if own is None:
            raise no_result(str(self._place), context)
        state, progress = own
        rows = own_rows(state, context, str(self._place))
        if self.applies is not None:
            rows = rows.drop(self.applies.order_column, self.applies.older_column)
        return contract.Snapshot(rows=rows, batch=progress.batch, key=tuple(self.key))

    @property
    def changes(self) -> TableChanges[DeltaSink]:
        return TableChanges(sink=self)

    @property
    def ledger(self) -> DeltaLedger:
        return DeltaLedger(seen=self._current_state)

    @property
    def rename(self) -> DeltaRename:
        former = self._with(table=self.renamed_from) if self.renamed_from else None
        return DeltaRename(place=self._place, renamed_from=self.renamed_from, former=former)

    @property
    def reset(self) -> DeltaReset:
        return DeltaReset(place=self._place, droppable=True)

    @property
    def rewind(self) -> DeltaRewind:
        return DeltaRewind(place=self._place, name=str(self._place))

    @property
    def adoption(self) -> DeltaAdoption:
        return DeltaAdoption(
            find=self._foreign, name=str(self._place), key=self.key, takes_over=True, tells_batches=True
        )

    @property
    def swap(self) -> DeltaSwap | None:
        if self.path is not None and self._place.directory is None:
            return None
        if self.path is None:
            shadow = self._with(table=shadow_name(str(self.table)))
        else:
            shadow = self._with(path=str(aside.place_of_rebuild(aside.local_directory(self.path))))
        return DeltaSwap(place=self._place, shadow=shadow)

    def _with(self, **place: Any) -> DeltaSink:
        """The same sink with another table."""
        other = replace(self, renamed_from="", **place)
        return other if self.applies is None else other.changes.bind(self.applies)

    def _with_stored_columns(self, frame: DataFrame) -> DataFrame:
        """The result with the columns of the table."""
        return frame if self.applies is None else with_stored_columns(frame, self.applies)

    def _foreign(self, frame: DataFrame, context: contract.SinkContext) -> DeltaTable:
        """The table that another program has written for the result `frame`. Raises SinkError where it does not fit."""
        frame = self._with_stored_columns(frame)
        self._require_result(frame, context)
        table = self._place.find(frame.sparkSession)
        if table is None:
            raise not_there(str(self._place), context)
        self._missing_columns(table.now(), frame.schema, context, adds=False)
        return table

    def _current_state(self) -> State | None:
        """The table as it is now; None where there is none, or no session to look with."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is None:
            return None
        spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        with suppress(SinkError):
            table = self._place.find(spark)
            return None if table is None else table.now()
        return None

    # ------------------------------------------------------------------------------------------------- the table

    @property
    def _place(self) -> DeltaPlace:
        return DeltaPlace(path=self.path, table=self.table, error=SinkError)

    def _require_result(self, frame: DataFrame, context: contract.SinkContext) -> None:
        if findings := list(self.check_result(frame, context)):
            raise SinkError(findings)

    def _create_table(self, frame: DataFrame, context: contract.SinkContext) -> None:
        from pyspark.errors import PySparkException

        where, parts = self._place.in_sql, ", ".join(quote(name) for name in self.partition_by)
        columns = ", ".join(_declaration(name, frame.schema) for name in frame.columns)
        statement = f"CREATE TABLE {where} ({columns}) USING delta{f' PARTITIONED BY ({parts})' if parts else ''}"
        try:
            frame.sparkSession.sql(statement)
        except PySparkException as error:
            fault = f"no table {where} can be made for the result of query '{context.query}': {first_sentence(error)}"
            raise SinkError(code="HR404", what=fault, fix="change the query's last select") from error

    def _missing_columns(
        self, state: State, schema: StructType, context: contract.SinkContext, *, adds: bool
    ) -> list[str]:
        """The columns that the table lacks, as SQL declares them. Raises SinkError with all differences that stay."""
        table = {field.name.lower(): field for field in state.schema.fields}
        result = {name.lower() for name in schema.names}
        differences, missing = [], []
        for given in schema.fields:
            column, kind = table.get(given.name.lower()), given.dataType.simpleString()
            if column is None and adds and given.name not in self.key:
                missing.append(_declaration(given.name, schema))
            elif column is None:
                differences.append(f"it has no column '{given.name}'")
            elif column.dataType.simpleString() != kind:
                of_table = column.dataType.simpleString()
                differences.append(f"its column '{column.name}' is {of_table}, the result's is {kind}")
        differences += [f"its column '{table[name].name}' is not in the result" for name in table if name not in result]
        if self.partition_by and list(self.partition_by) != state.partitions:
            by = ", ".join(state.partitions) or "nothing"
            differences.append(f"it is partitioned by {by} and not by {', '.join(self.partition_by)}")
        if differences:
            has_more = not adds and all("has no column" in difference for difference in differences)
            fix = "set on_schema_change to add" if has_more else "change the query's last select"
            fault = f"{self._place} does not fit the result of query '{context.query}'"
            fix += ", or write to another table"
            raise SinkError([Finding(code="HR406", what=f"{fault}: {text}", fix=fix) for text in differences])
        return missing

    def _require_empty(self) -> None:
        directory = self._place.directory
        if directory is not None and directory.exists() and (not directory.is_dir() or aside.count_files(directory)):
            fault = f"'{directory}' holds files that are no Delta table"
            raise SinkError(code="HR407", what=fault, fix="write to an empty directory")

    def _require_ours(self, state: State, context: contract.SinkContext) -> None:
        """Rows of somebody else would be replaced, or those of an older generation be there twice."""
        name, progress, txn_ids = str(self._place), ledger.progress_of_all(state.txn_ids), state.txn_ids
        mine, own = context.query_id, progress.get((context.query_id, context.generation))
        with_batches = [key for key, reached in progress.items() if reached.batch is not None]
        others = {key: ledger.label(*key, txn_ids) for key in with_batches if key[0] != mine}
        alone = {label for key, label in others.items() if ledger.app(*key, ledger.ALONE) in txn_ids}
        older = [number for query_id, number in with_batches if query_id == mine]
        begun = (own is not None and own.batch is not None) or ledger.is_handed_over(context, txn_ids)
        fault = ""
        if context.query in others.values():
            fault = f"{name} has batches of another query '{context.query}', of another project or of version 0.1.0"
        elif context.mode != "append" and others:
            fault = f"{name} already holds the result of query '{min(others.values())}'"
        elif alone:
            fault = f"{name} belongs to query '{min(alone)}', which changes its rows"
        elif not begun and older and state.has_rows:
            require_own_generation(name, context, max(older))
        elif not begun and context.mode != "append" and state.has_rows:
            fault = f"{name} already holds rows that no query wrote"
        if fault:
            fix = "write to another table, or delete the rows of this one first"
            raise SinkError(code="HR407", what=fault, fix=fix)

    @staticmethod
    def _lines(state: State, context: contract.SinkContext) -> list[KeptLine] | None:
        """The ledger's lines; None of a clone, which has the rows of a table and nothing of its ledger."""
        has_ledger = ledger.own_mark(context) in state.txn_ids or not state.has_rows
        return ledger.lines(state, context) if has_ledger else None

    def _enter(self, table: DeltaTable, context: contract.SinkContext) -> tuple[int, KeptLine | None]:
        """Enter the start into the table as it is now. Raises Conflict where a batch of the query has come in since."""
        state = table.now()
        txn_ids = state.txn_ids
        kept = self._lines(state, context)
        lines = kept or []
        require_lines_fit(context, self._place.text, lines, begun=kept is not None)
        self._require_ours(state, context)
        last, begun = ledger.progress(context, txn_ids), None
        if ledger.own_mark(context, ledger.BEGIN) not in txn_ids:
            begun = FirstVersion(state.version, state.has_rows and not ledger.is_handed_over(context, txn_ids))
        entered = ledger.start_marks(context, Progress(last.epoch + 1, last.batch), begun)
        for (name, number), progress in ledger.progress_of_all(txn_ids).items():
            if name == context.query_id and number != context.generation and not progress.is_closed:
                entered[ledger.app(name, number)] = progress.close().number
        identity = Checkpoint(context.checkpoint).id
        if identity is not None:
            entered[ledger.own_mark(context, ledger.CHECKPOINT, identity)] = 1
        context.before_entering()
        state.enter(entered)
        return last.epoch + 1, lines[-1] if lines else None


def _declaration(name: str, schema: StructType) -> str:
    """A column as SQL declares it."""
    return f"{quote(name)} {schema[name].dataType.simpleString()}"
