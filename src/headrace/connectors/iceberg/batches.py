"""A batch as one commit of an Iceberg table, with the ledger: a property that changes in the commit of the rows.

Spark's workers write the data files, the driver brings them into the table once.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.connectors import exactly_once
from headrace.connectors.exactly_once import Conflict, KeptLine, Standing, TextLedger
from headrace.connectors.exactly_once.acceptance import KEPT
from headrace.connectors.iceberg.files import form_of, keep_nulls, live_entries
from headrace.connectors.iceberg.table import TableRef, find_refused_values, parts_of
from headrace.connectors.spark_files.formats import refuse_values
from headrace.contract import SinkContext
from headrace.errors import HeadraceError, SinkError
from headrace.spark.messages.refusals import is_from_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update.snapshot import UpdateSnapshot
    from pyspark.sql import DataFrame

# What a worker collects before it writes; pyiceberg cuts it into files by the table's own setting.
CHUNK = 256 * 1024 * 1024
PROPERTY = "headrace.ledger"


@dataclass(frozen=True, kw_only=True)
class TableLedger(TextLedger):
    """Whose table it is, which driver may write, and what is in."""

    @classmethod
    def of_table(cls, table: Table, context: SinkContext | None = None) -> TableLedger | None:
        """The ledger of `table`; None where no query has written it, or another one than the context's generation."""
        text = table.metadata.properties.get(PROPERTY)
        ledger = None if text is None else cls.loads(text)
        return ledger if context is None or (ledger is not None and ledger.is_of(context)) else None

    @property
    def batch(self) -> int:
        """The newest batch that is in; -1: none."""
        return self.lines[-1].batch if self.lines else -1

    def with_new_epoch(self) -> TableLedger:
        """Return the ledger with a new epoch, so that an older driver writes nothing more."""
        return replace(self, epoch=uuid.uuid4().hex)


@dataclass(frozen=True, kw_only=True)
class IcebergLedger(exactly_once.LinesLedger):
    """Which batches are in, by the table's ledger; none where the catalog does not answer."""

    place: TableRef

    def lines(self, context: SinkContext, most: int = KEPT) -> tuple[KeptLine, ...]:
        with suppress(SinkError), self.place.translate_errors():
            own = own_table(self.place, context)
            return () if own is None else own[1].lines
        return ()


def own_table(place: TableRef, context: SinkContext) -> tuple[Table, TableLedger] | None:
    """The table with its ledger; None where it is not there, or not of the context's generation."""
    table = place.find()
    ledger = None if table is None else TableLedger.of_table(table, context)
    return None if table is None or ledger is None else (table, ledger)


@contextmanager
def committing(
    table: Table,
    ledger: TableLedger,
    further: Mapping[str, str] | None = None,
    *,
    properties: Mapping[str, str] | None = None,
) -> Iterator[UpdateSnapshot]:
    """Add a snapshot to the table as `table` knows it, in one commit with the ledger and `further` properties.

    properties: what the snapshot says of itself besides. Raises Conflict where another snapshot has come in between.

    Every change of the ledger is a snapshot, if need be an empty one: the catalog takes a commit only if no other
    snapshot has come in between, and so the ledger that was looked at is the one that is replaced. pyiceberg would by
    itself try again upon the other snapshot, with the old ledger; so its retries are switched off.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import Table, TableProperties

    alone = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": alone})
    only = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    try:
        with only.transaction() as transaction:
            transaction.set_properties({PROPERTY: ledger.dumps(), **(further or {})})
            facts = {name: str(getattr(ledger, name)) for name in ("query_id", "query", "generation", "batch")}
            summary = {f"headrace.{name}": text for name, text in facts.items()}
            yield transaction.update_snapshot(snapshot_properties={**summary, **(properties or {})})
    except CommitFailedException as error:
        raise Conflict("another writer was quicker") from error


def enter(table: Table, ledger: TableLedger, further: Mapping[str, str] | None = None) -> None:
    """Put another ledger in the place of the table's, without rows. Raises Conflict as `committing`."""
    with committing(table, ledger, further) as update, update.fast_append():
        pass


def require_ours(table: Table, name: str, context: SinkContext) -> None:
    """Raise SinkError where rows of somebody else would be mixed with the result, or replaced by it."""
    ledger = TableLedger.of_table(table)
    if ledger is None:
        if rows_of(table.current_snapshot()) == 0:
            return
        fault = f"{name} already holds rows that no query wrote"
    elif ledger.application != context.application:
        fault = f"{name} belongs to query '{ledger.query}' of another project ('{ledger.project}')"
    elif ledger.query_id != context.query_id:
        fault = f"{name} belongs to query '{ledger.query}'"
    else:
        if ledger.batch >= 0 or ledger.generation > context.generation:
            exactly_once.require_own_generation(name, context, ledger.generation)
        return
    raise SinkError(code="HR407", what=fault, fix="write to another table, or drop this one")


def rows_of(snapshot: Any) -> int | None:
    """Return how many rows a snapshot has, 0 without a snapshot; None: the snapshot does not say."""
    if snapshot is None:
        return 0
    count = None if snapshot.summary is None else snapshot.summary["total-records"]
    return int(count) if count else None


@dataclass(frozen=True)
class Writing:
    """Writes rows on a worker as data files of a table, by its schema and partitions as they were at the start."""

    metadata: TableMetadata
    io: FileIO
    name: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The files that were written, as a frame of (file BINARY)."""
        together: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if batch.num_rows:
                together.append(batch)
                size += batch.nbytes
            if size >= CHUNK:
                yield self._write(together)
                together, size = [], 0
        if together:
            yield self._write(together)

    def _write(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        import pyarrow as pa
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        keep_nulls()
        rows = self._fit(pa.Table.from_batches(batches))
        files = _dataframe_to_data_files(table_metadata=self.metadata, df=rows, io=self.io)
        return pa.RecordBatch.from_pydict({"file": pa.array([pickle.dumps(file) for file in files], pa.binary())})

    def _fit(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, in its order and types."""
        import pyarrow as pa
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        wanted = schema_to_pyarrow(self.metadata.schema(), include_field_ids=False)
        columns = []
        for column in wanted:
            given = rows[column.name] if column.name in rows.column_names else pa.nulls(rows.num_rows, column.type)
            if given.null_count and not column.nullable:
                fault = f"{given.null_count} rows have NULL in column '{column.name}', which {self.name} does not take"
                fix = "filter such rows out or give them a value, or let the table's column be optional"
                raise SinkError(code="HR440", what=fault, fix=fix)
            columns.append(given.cast(column.type))
        return pa.Table.from_arrays(columns, schema=wanted)


@dataclass(frozen=True)
class Written:
    """The data files of a batch, and the columns and partitions of the table that they were written for."""

    files: tuple[DataFile, ...]
    form: tuple[int, int]


@dataclass(kw_only=True)
class IcebergStore(exactly_once.BatchStore[Written]):
    """An Iceberg table as one start of a query writes it; each batch is one commit."""

    place: TableRef
    context: SinkContext
    epoch: str
    name: str = field(init=False)
    # The table as it was last looked at, its ledger, and what that says of the batch.
    _table: Table | None = field(default=None, init=False, repr=False)
    _ledger: TableLedger | None = field(default=None, init=False, repr=False)
    _standing: Standing = field(default=Standing(), init=False)

    def __post_init__(self) -> None:
        self.name = self.place.table

    def standing(self, batch: int) -> Standing:
        self._table = self.place.open() if self._table is None else self.place.again(self._table)
        self._ledger = TableLedger.of_table(self._table, self.context)
        if self._ledger is None:
            fault = f"{self.place} no longer holds the result of query '{self.context.query}'"
            fix = "put the table back, or reset the query (headrace reset QUERY)"
            raise SinkError(code="HR407", what=fault, fix=fix)
        self._standing = self._ledger.standing(batch, self.epoch)
        return self._standing

    def kept_plan(self, batch: int) -> str | None:
        return None if self._ledger is None else self._ledger.kept_plan(batch)

    def compute(self, frame: DataFrame, batch: int) -> Written:
        table = self._known_table
        writing = Writing(form_of(table), table.io, str(self.place))
        frame = refuse_values(frame, find_refused_values(frame, parts_of(table)))
        with self.computing(batch):
            made = frame.mapInArrow(writing, "file BINARY").collect()
        return Written(tuple(pickle.loads(row[0]) for row in made), _form(table))

    def commit(self, rows: Written, batch: int, admit: exactly_once.Admission) -> None:
        table, ledger = self._known_table, self._ledger
        if _form(table) != rows.form:
            fault = f"the columns or partitions of {self.place} were changed while batch {batch} was written"
            raise SinkError(code="HR441", what=fault, fix="start again: the batch is rewritten")
        admitted = admit(self._standing)
        if admitted is None or ledger is None:
            return
        current = table.current_snapshot()
        replaces = self.context.mode == "complete" and current is not None
        old = [entry.data_file for entry in live_entries(table, current)] if replaces and current is not None else []
        with committing(table, ledger.with_batch(admitted.line)) as update:
            exchange(update, old, rows.files)
            self.context.on_boundary("inside-transaction", batch)

    def release(self, rows: Written | None, error: Exception | None) -> None:
        """Delete the files of a batch that is not in; where that is not known, they stay."""
        if rows is None or not isinstance(error, HeadraceError | Conflict):
            return
        for file in rows.files:
            with suppress(Exception):
                self._known_table.io.delete(file.file_path)

    def explain(self, error: Exception, batch: int) -> Exception:
        if isinstance(error, Conflict):
            fault = f"batch {batch} of query '{self.context.query}' was not written: others commit to {self.place} too"
            fix = "let compaction and other writers leave pauses, or write to a table of its own; then start again"
            return SinkError(code="HR441", what=fault, fix=fix)
        if is_from_spark(error) or type(error).__module__.startswith("headrace."):
            return error  # What Spark says is read where the query's end is reported.
        return self.place.as_headrace_error(error)

    @property
    def _known_table(self) -> Table:
        assert self._table is not None, "`standing` comes first"
        return self._table


def exchange(update: UpdateSnapshot, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    """Take data files out of the table, and bring others in."""
    producer: Any = update.overwrite() if old else update.merge_append()
    with producer:
        for file in old:
            producer.delete_data_file(file)
        for file in new:
            producer.append_data_file(file)


def _form(table: Table) -> tuple[int, int]:
    return table.metadata.current_schema_id, table.metadata.default_spec_id
