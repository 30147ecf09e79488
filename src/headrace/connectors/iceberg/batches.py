"""One batch, one commit: Spark's workers write the data files, the driver brings them into the table once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.connectors.exactly_once import Admission, BatchStore, Conflict, Standing
from headrace.connectors.iceberg.files import form_of, keep_nulls, live_entries
from headrace.connectors.iceberg.ledger import TableLedger
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import SinkContext
from headrace.errors import Finding, HeadraceError, SinkError
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
                raise SinkError(Finding(code="HR440", what=what, fix=fix))
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
        found = self._ledger = TableLedger.of(self._table)
        if found is None or not found.is_of(self.context):
            what = f"{self.place} no longer holds the result of query '{self.context.query}'"
            fix = "put the table back, or reset the query (headrace reset QUERY)"
            raise SinkError(Finding(code="HR407", what=what, fix=fix))
        lines = [each.line for each in found.known]
        self._standing = Standing(
            newer="" if found.epoch == self.epoch else f"epoch {found.epoch[:8]}, this one has {self.epoch[:8]}",
            is_in=found.batch >= batch,
            own=next((line for line in lines if line.batch == batch), None),
            before=next((line for line in reversed(lines) if line.batch < batch), None),
        )
        return self._standing

    def planned(self, batch: int) -> str | None:
        known = () if self._ledger is None else self._ledger.known
        return next((line.planned for line in known if line.batch == batch), None)

    def compute(self, frame: DataFrame, batch: int) -> Written:
        table = self._known_table
        writing = Writing(form_of(table), table.io, str(self.place))
        with self.computing(batch):
            made = frame.mapInArrow(writing, "file BINARY").collect()
        return Written(tuple(pickle.loads(row[0]) for row in made), _form(table))

    def commit(self, rows: Written, batch: int, admit: Admission) -> None:
        from pyiceberg.exceptions import CommitFailedException

        table, found = self._known_table, self._ledger
        if _form(table) != rows.form:
            what = f"the columns or partitions of {self.place} were changed while batch {batch} was written"
            raise SinkError(Finding(code="HR441", what=what, fix="start again: the batch is rewritten"))
        admitted = admit(self._standing)
        if admitted is None or found is None:
            return
        current = table.current_snapshot()
        replaces = self.context.mode == "complete" and current is not None
        old = [entry.data_file for entry in live_entries(table, current)] if replaces and current is not None else []
        try:
            with committing(table, found.with_batch(admitted.line)) as update:
                producer: Any = update.overwrite() if old else update.merge_append()
                with producer:
                    for file in old:
                        producer.delete_data_file(file)
                    for file in rows.files:
                        producer.append_data_file(file)
                self.context.on_boundary("inside-transaction", batch)
        except CommitFailedException as error:
            raise Conflict("another writer was quicker") from error

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
            return SinkError(Finding(code="HR441", what=what, fix=fix))
        if is_from_spark(error) or type(error).__module__.startswith("headrace."):
            return error  # What Spark says is read where the query's end is reported.
        return self.place.explained(error)

    @property
    def _known_table(self) -> Table:
        assert self._table is not None, "`standing` comes first"
        return self._table


@contextmanager
def committing(
    table: Table,
    ledger: TableLedger,
    further: Mapping[str, str] | None = None,
    *,
    properties: Mapping[str, str] | None = None,
) -> Iterator[UpdateSnapshot]:
    """What adds a snapshot to the table as `table` knows it, in one commit with the ledger and `further` properties.

    properties: what the snapshot says of itself besides.

    Every change of the ledger is a snapshot, if need be an empty one: the catalog takes a commit only if no other
    snapshot has come in between, and so the ledger that was looked at is the one that is replaced. pyiceberg would by
    itself try again upon the other snapshot, with the old ledger; so it is told not to.
    """
    from pyiceberg.table import Table, TableProperties

    alone = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": alone})
    only = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    with only.transaction() as transaction:
        transaction.set_properties({**ledger.properties, **(further or {})})
        yield transaction.update_snapshot(snapshot_properties={**ledger.summary, **(properties or {})})


def _form(table: Table) -> tuple[int, int]:
    return table.metadata.current_schema_id, table.metadata.default_spec_id
