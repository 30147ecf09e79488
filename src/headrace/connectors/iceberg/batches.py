"""One batch, one commit: Spark's workers write the data files, the driver brings them into the table once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.connectors.exactly_once import Admission, BatchStore, Conflict, Standing
from headrace.connectors.iceberg.files import form_of, keep_nulls, live_entries
from headrace.connectors.iceberg.ledger import TableLedger, committing
from headrace.connectors.iceberg.table import TableRef, parts_of, refused_values
from headrace.connectors.spark_files.formats import refusing
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
                yield self._written(together)
                together, size = [], 0
        if together:
            yield self._written(together)

    def _written(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        import pyarrow as pa
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        keep_nulls()
        rows = self._fitted(pa.Table.from_batches(batches))
        files = _dataframe_to_data_files(table_metadata=self.metadata, df=rows, io=self.io)
        return pa.RecordBatch.from_pydict({"file": pa.array([pickle.dumps(file) for file in files], pa.binary())})

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, in its order and types."""
        import pyarrow as pa
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        wanted = schema_to_pyarrow(self.metadata.schema(), include_field_ids=False)
        columns = []
        for column in wanted:
            given = rows[column.name] if column.name in rows.column_names else pa.nulls(rows.num_rows, column.type)
            if given.null_count and not column.nullable:
                what = f"{given.null_count} rows have NULL in column '{column.name}', which {self.name} does not take"
                fix = "filter such rows out or give them a value, or let the table's column be optional"
                raise SinkError(code="HR440", what=what, fix=fix)
            columns.append(given.cast(column.type))
        return pa.Table.from_arrays(columns, schema=wanted)


@dataclass(frozen=True)
class Written:
    """The data files of a batch, and the columns and partitions of the table that they were written for."""

    files: tuple[DataFile, ...]
    form: tuple[int, int]


@dataclass(kw_only=True)
class IcebergStore(BatchStore[Written]):
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
            what = f"{self.place} no longer holds the result of query '{self.context.query}'"
            fix = "put the table back, or reset the query (headrace reset QUERY)"
            raise SinkError(code="HR407", what=what, fix=fix)
        self._standing = self._ledger.standing(batch, self.epoch)
        return self._standing

    def kept_plan(self, batch: int) -> str | None:
        return None if self._ledger is None else self._ledger.kept_plan(batch)

    def compute(self, frame: DataFrame, batch: int) -> Written:
        table = self._known_table
        writing = Writing(form_of(table), table.io, str(self.place))
        frame = refusing(frame, refused_values(frame, parts_of(table)))
        with self.computing(batch):
            made = frame.mapInArrow(writing, "file BINARY").collect()
        return Written(tuple(pickle.loads(row[0]) for row in made), _form(table))

    def commit(self, rows: Written, batch: int, admit: Admission) -> None:
        table, ledger = self._known_table, self._ledger
        if _form(table) != rows.form:
            what = f"the columns or partitions of {self.place} were changed while batch {batch} was written"
            raise SinkError(code="HR441", what=what, fix="start again: the batch is rewritten")
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
            what = f"batch {batch} of query '{self.context.query}' was not written: others commit to {self.place} too"
            fix = "let compaction and other writers leave pauses, or write to a table of its own; then start again"
            return SinkError(code="HR441", what=what, fix=fix)
        if is_from_spark(error) or type(error).__module__.startswith("headrace."):
            return error  # What Spark says is read where the query's end is reported.
        return self.place.explained(error)

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
