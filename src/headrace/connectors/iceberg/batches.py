"""One batch, one commit: Spark's workers write the data files, the driver brings them into the table once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.connectors.exactly_once.checkpoint_match import is_stateful
from headrace.connectors.exactly_once.kept import KeptLine, require_same
from headrace.connectors.exactly_once.retry import attempts
from headrace.connectors.iceberg.files import form_of, live_entries
from headrace.connectors.iceberg.ledger import Ledger
from headrace.connectors.iceberg.nulls import keep_nulls
from headrace.connectors.iceberg.table import TableRef
from headrace.contract import SinkContext
from headrace.errors import Finding, HeadraceError, SinkError

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
                raise SinkError(Finding(code="HR454", what=what, fix=fix))
            columns.append(given.cast(column.type))
        return pa.Table.from_arrays(columns, schema=wanted)


@dataclass(kw_only=True)
class BatchWriter:
    """Takes the batches of one start of a query, for Spark's foreachBatch."""

    place: TableRef
    run: SinkContext
    epoch: str
    _table: Table | None = field(default=None, init=False, repr=False)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._take(frame, batch)
        except HeadraceError as fault:
            self.run.failed(fault)
            raise
        except Exception as fault:
            if type(fault).__module__.split(".")[0] in {"pyspark", "py4j", "headrace"}:
                raise  # What Spark says is read where the query's end is told.
            known = self.place.explained(fault)
            self.run.failed(known)
            raise known from None

    def _take(self, frame: DataFrame, batch: int) -> None:
        table = self._newest()
        if self._is_in(table, batch):
            if is_stateful(self.run.checkpoint):
                # Spark commits the state of a batch only if every partition of it is computed.
                frame.write.format("noop").mode("overwrite").save()
            return
        files = self._files(frame, table)
        self.run.secured(batch)
        self.run.reached("before-transaction", batch)
        try:
            self._commit(table, files, batch)
        except HeadraceError:
            for file in files:
                with suppress(Exception):
                    table.io.delete(file.file_path)
            raise
        self.run.reached("after-transaction", batch)

    def _files(self, frame: DataFrame, table: Table) -> list[DataFile]:
        writing = Writing(form_of(table), table.io, str(self.place))
        made = frame.mapInArrow(writing, "file BINARY").collect()
        return [pickle.loads(row[0]) for row in made]

    def _commit(self, table: Table, files: Sequence[DataFile], batch: int) -> None:
        """Bring the files and the ledger into the table at once; another writer may have come in between."""
        from pyiceberg.exceptions import CommitFailedException

        form = _form(table)
        for attempt in attempts():
            if attempt:
                table = self._newest()
                if self._is_in(table, batch):
                    return
            if _form(table) != form:
                what = f"the columns or partitions of {self.place} were changed while batch {batch} was written"
                raise SinkError(Finding(code="HR453", what=what, fix="start again: the batch is written anew"))
            try:
                return self._transact(table, files, batch)
            except CommitFailedException:
                continue
        what = f"batch {batch} of query '{self.run.query}' was not written: others commit to {self.place} all the time"
        fix = "let compaction and other writers leave pauses, or write to a table of its own; then start again"
        raise SinkError(Finding(code="HR453", what=what, fix=fix))

    def _transact(self, table: Table, files: Sequence[DataFile], batch: int) -> None:
        found = Ledger.of(table)
        assert found is not None, "`_is_in` has looked at it"
        ledger = found.with_batch(KeptLine.of(self.run, batch, found.lines[-1] if found.lines else None))
        current = table.current_snapshot()
        old = (
            [entry.data_file for entry in live_entries(table, current)]
            if self.run.mode == "complete" and current is not None
            else []
        )
        with committing(table, ledger) as update:
            producer: Any = update.overwrite() if old else update.merge_append()
            with producer:
                for file in old:
                    producer.delete_data_file(file)
                for file in files:
                    producer.append_data_file(file)
            self.run.reached("inside-transaction", batch)

    def _newest(self) -> Table:
        self._table = self.place.open() if self._table is None else self.place.again(self._table)
        return self._table

    def _is_in(self, table: Table, batch: int) -> bool:
        """Whether this very batch is in.

        Raises Fenced, SinkError where the table was taken away, CheckpointError where another of its number is in.
        """
        ledger = Ledger.of(table)
        if ledger is None or not ledger.is_of(self.run):
            what = f"{self.place} no longer holds the result of query '{self.run.query}'"
            raise SinkError(Finding(code="HR407", what=what, fix="put the table back, or begin the query anew"))
        ledger.require_epoch(self.epoch, batch)
        if ledger.batch < batch:
            return False
        require_same(self.run, self.place.table, ledger.known, batch)
        return True


@contextmanager
def committing(table: Table, ledger: Ledger) -> Iterator[UpdateSnapshot]:
    """What adds a snapshot to the table as `table` knows it, in one commit with the ledger.

    Every change of the ledger is a snapshot, if need be an empty one: the catalog takes a commit only if no other
    snapshot has come in between, and so the ledger that was looked at is the one that is replaced. pyiceberg would by
    itself try again upon the other snapshot, with the old ledger; so it is told not to.
    """
    from pyiceberg.table import Table, TableProperties

    alone = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": alone})
    only = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    with only.transaction() as transaction:
        transaction.set_properties(ledger.properties)
        yield transaction.update_snapshot(snapshot_properties=ledger.summary)


def _form(table: Table) -> tuple[int, int]:
    return table.metadata.current_schema_id, table.metadata.default_spec_id
