"""Write the result into an Iceberg table, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.connectors.exactly_once import BatchWriter, KeptLine, misfits, require_lines_fit
from headrace.connectors.exactly_once.lake import among_writers, no_result, not_there, shadow_name
from headrace.connectors.iceberg import batches, generations
from headrace.connectors.iceberg import table as iceberg_columns
from headrace.connectors.iceberg.files import frame as frame_of
from headrace.connectors.iceberg.files import live_files
from headrace.connectors.iceberg.table import DEFAULT_CATALOG, NAME, PartitionField, TableRef
from headrace.connectors.result_findings import findings_of, missing_columns
from headrace.contract import Identity, OptionError, OutputMode, Sink, SinkContext, SinkFacts, SinkLocation, Snapshot
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.contract import RefusedValue


@dataclass(frozen=True, kw_only=True)
class IcebergSink(Sink):
    """Write an Iceberg table, named `namespace.table`; each batch is one commit, which has its number as a property.

    Source: Iceberg's table specification. Spark's workers write the data files, which readers see after the commit. In
    append mode a commit adds them; in complete mode it replaces all others by them. The table is made if it is not
    there; one that is there keeps its partitions, and its columns must fit. One query writes a table.

    renamed_from: the name that the table had before: it is renamed in its catalog at the next start.
    catalog: the catalog's properties, as pyiceberg names them (`type`, `uri`, `warehouse`, `credential`, ...), with
        its name as `name`; or the name of a catalog in pyiceberg's own configuration.
    partition_by: columns of the result, or functions of them: year, month, day or hour of a column, bucket(16, column),
        truncate(4, column).
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset({"append", "complete"}), transactional=True, idempotent=True, adds_files=True
    )
    worker_packages: ClassVar[tuple[str, ...]] = ("pyiceberg",)
    table: str
    catalog: str | Mapping[str, str] = field(default=DEFAULT_CATALOG, repr=False)
    partition_by: Sequence[str] = ()
    renamed_from: str = ""

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        yield from self._place.problems()
        if self.renamed_from and (self.renamed_from == self.table or NAME.fullmatch(self.renamed_from) is None):
            fault = f"table '{self.table}' cannot be renamed from '{self.renamed_from}'"
            yield OptionError(what=fault, fix="give renamed_from: the namespace.table that it was before")
        for part in self.partition_by:
            if PartitionField.of(part) is None:
                fault = f"partition_by: '{part}' is neither a column nor a function that Iceberg partitions by"
                fix = "write a column, or day(time), bucket(16, id), truncate(4, name) and the like"
                yield OptionError(what=fault, fix=fix)
        yield from super().problems(mode)

    def open(self, frame: DataFrame, context: SinkContext) -> BatchWriter[batches.Written]:
        """Make or compare the table, and draw the next epoch; nothing is changed if anything does not fit."""
        self._require_result(frame, context)
        with self._place.translate_errors():
            table = self._place.find()
            if table is None:
                require_lines_fit(context, self.table, ())
                table = self._create(frame.schema)
            epoch = self._enter(table, frame.schema, context)
        return BatchWriter(store=batches.IcebergStore(place=self._place, context=context, epoch=epoch))

    @property
    def location(self) -> SinkLocation:
        return SinkLocation(name="", systems=(self.table,), shown=f"Iceberg table '{self.table}'", ledger=True)

    def identity(self) -> Identity:
        return self._place.identity()

    def check_result(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        fix = "change the query's last select"
        for fault in iceberg_columns.find_unsupported(frame.schema):
            yield Finding(code="HR404", what=f"the result of query '{context.query}': {fault}", fix=fix)
        named = [part.column for part in map(PartitionField.of, self.partition_by) if part is not None]
        yield from missing_columns("partition_by", named, frame.columns, context.query)

    def refused_values(self, frame: DataFrame) -> Iterator[RefusedValue]:
        return iceberg_columns.find_refused_values(frame, iceberg_columns.parts_of(self._place.open()))

    def check_connection(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        try:
            with self._place.translate_errors():
                if (table := self._place.find()) is None:
                    yield from misfits(context, self.table, tuple)
                    return
                self._require_fit(table, frame.schema, context)
                yield from misfits(context, self.table, lambda: self._lines(self._place.again(table), context))
        except SinkError as error:
            yield from findings_of(error)

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        with self._place.translate_errors():
            own = batches.own_table(self._place, context)
            if own is None:
                raise no_result(str(self._place), context)
            table, ledger = own
            current = table.current_snapshot()
            tasks = [] if current is None else [(task, ledger.batch) for task in live_files(table, current)]
            return Snapshot(rows=frame_of(spark, table, ledger.schema, tasks, None), batch=ledger.last)

    @property
    def ledger(self) -> batches.IcebergLedger:
        return batches.IcebergLedger(place=self._place)

    @property
    def rename(self) -> generations.IcebergRename:
        former = replace(self, table=self.renamed_from, renamed_from="") if self.renamed_from else None
        return generations.IcebergRename(place=self._place, renamed_from=self.renamed_from, former=former)

    @property
    def reset(self) -> generations.IcebergReset:
        return generations.IcebergReset(place=self._place, droppable=True)

    @property
    def rewind(self) -> generations.IcebergRewind:
        return generations.IcebergRewind(place=self._place, name=str(self._place))

    @property
    def adoption(self) -> generations.IcebergAdoption:
        return generations.IcebergAdoption(place=self._place, find=self._foreign, takes_over=True, tells_batches=True)

    @property
    def swap(self) -> generations.IcebergSwap:
        shadow = replace(self, table=shadow_name(self.table), renamed_from="")
        return generations.IcebergSwap(place=self._place, shadow=shadow)

    def _foreign(self, frame: DataFrame, context: SinkContext) -> Table:
        """The table that another program has written for the result `frame`. Raises SinkError where it does not fit."""
        self._require_result(frame, context)
        table = self._place.find()
        if table is None:
            raise not_there(str(self._place), context)
        self._require_columns(table, frame.schema, context)
        return table

    @property
    def _place(self) -> TableRef:
        return TableRef(table=self.table, catalog=self.catalog, error=SinkError)

    def _require_result(self, frame: DataFrame, context: SinkContext) -> None:
        if faults := list(self.check_result(frame, context)):
            raise SinkError(faults)

    def _require_fit(self, table: Table, schema: StructType, context: SinkContext) -> None:
        batches.require_ours(table, str(self._place), context)
        self._require_columns(table, schema, context)

    def _require_columns(self, table: Table, schema: StructType, context: SinkContext) -> None:
        """Raise SinkError with all that keeps the table from taking the result by its columns and partitions."""
        fix = "change the query's last select or the table, or write to another table"
        misfit = f"{self._place} does not fit the result of query '{context.query}'"
        wrong = iceberg_columns.incompatibilities(table, schema)
        faults = [Finding(code="HR406", what=f"{misfit}: {fault}", fix=fix) for fault in wrong]
        there, wanted = iceberg_columns.parts_of(table), [str(PartitionField.of(part)) for part in self.partition_by]
        if wanted and there != wanted:
            fault = f"{self._place} is partitioned by {', '.join(there) or 'nothing'} and not by {', '.join(wanted)}"
            fix = "leave partition_by out, and the table keeps its own partitions; or write to another table"
            faults.append(Finding(code="HR406", what=fault, fix=fix))
        if faults:
            raise SinkError(faults)

    @staticmethod
    def _lines(table: Table, context: SinkContext) -> tuple[KeptLine, ...]:
        ledger = batches.TableLedger.of_table(table, context)
        return () if ledger is None else ledger.lines

    def _create(self, schema: StructType) -> Table:
        catalog = self._place.with_namespace()
        with catalog.create_table_transaction(self.table, schema=iceberg_columns.arrow_schema(schema)) as making:
            if self.partition_by:
                with making.update_spec() as spec:
                    for part in filter(None, map(PartitionField.of, self.partition_by)):
                        spec.add_field(part.column, part.transform)
        return self._place.open()

    def _enter(self, before: Table, schema: StructType, context: SinkContext) -> str:
        """Begin the next epoch of the query, which is given back."""

        def change() -> str:
            table = self._place.again(before)
            self._require_fit(table, schema, context)
            lines = self._lines(table, context)
            require_lines_fit(context, self.table, lines)
            entered = batches.TableLedger.begin(context, schema.json(), lines)
            context.before_entering()
            batches.enter(table, entered)
            return entered.epoch

        return among_writers(str(self._place), change, then="start again")
