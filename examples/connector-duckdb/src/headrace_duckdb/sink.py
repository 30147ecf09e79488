"""Write the result into a table of a DuckDB file, exactly once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import duckdb
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.exactly_once import BatchWriter, TextLedger, TextStore
from headrace.contract import OUTPUT_MODES, ProjectPath, Sink, SinkContext, SinkFacts, SinkLocation, Snapshot
from headrace.errors import SinkError
from headrace_duckdb import connect, quote


@dataclass(frozen=True, kw_only=True)
class DuckDb(Sink):
    """The table `table` of the file `path`; each batch is one transaction with the table's ledger.

    DuckDB lets one process at a time open a file that is written. So the driver writes all rows, and opens the file
    again for each batch: others can read between two batches. key: identifies a row, for update mode.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(modes=frozenset(OUTPUT_MODES), transactional=True, idempotent=True)
    path: ProjectPath
    table: str
    key: Sequence[str] = ()

    def open(self, frame: DataFrame, context: SinkContext) -> BatchWriter[Any]:
        if context.mode == "update" and not self.key:
            raise SinkError(code="DUCKDB-2", what="update mode needs a key", fix="give the groups' columns")
        store, columns = DuckDbStore(self, context), frame.sparkSession.createDataFrame([], frame.schema).toArrow()
        with connect(self.path) as connection:
            connection.register("batch", columns)
            connection.execute("CREATE TABLE IF NOT EXISTS headrace_ledgers (name VARCHAR PRIMARY KEY, ledger VARCHAR)")
            connection.execute("INSERT OR IGNORE INTO headrace_ledgers VALUES (?, NULL)", [self.table])
            if (text := store.ledger(connection)) is None:  # A table that somebody else has made makes it fail.
                connection.execute(f"CREATE TABLE {quote(self.table)} AS FROM batch")
            ledger = TextLedger.start(text, context, self.table, frame.schema.json())
            context.before_entering()
            store.enter(connection, ledger.dumps())
            store.epoch = ledger.epoch
        return BatchWriter(store=store)

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        with connect(self.path, read_only=True) as connection:
            ledger = TextLedger.of(DuckDbStore(self, context).ledger(connection), context, self.table)
            rows = connection.sql(f"FROM {quote(self.table)}").to_arrow_table()
        return Snapshot(rows=spark.createDataFrame(rows, ledger.schema), batch=ledger.last, key=tuple(self.key))

    @property
    def location(self) -> SinkLocation:
        return SinkLocation(name=self.table, systems=(self.path,), shown=f"'{self.table}' in {self.path}", ledger=True)


class DuckDbStore(TextStore[Any, Any]):
    """The table as one start of a query writes it."""

    def __init__(self, sink: DuckDb, context: SinkContext) -> None:
        self.sink, self.context, self.name = sink, context, sink.table

    def transaction(self) -> Any:
        return connect(self.sink.path)

    def ledger(self, connection: Any) -> str | None:
        rows = connection.execute("SELECT ledger FROM headrace_ledgers WHERE name = ?", [self.name]).fetchall()
        return rows[0][0] if rows else None

    def enter(self, connection: Any, text: str) -> None:
        """Of two transactions that change one line, DuckDB lets the second fail."""
        connection.execute("UPDATE headrace_ledgers SET ledger = ? WHERE name = ?", [text, self.name])

    def compute(self, frame: DataFrame, batch: int) -> Any:
        with self.computing(batch):
            return frame.toArrow()

    def write(self, connection: Any, rows: Any) -> None:
        connection.register("batch", rows)
        table = quote(self.name)
        if self.context.mode == "complete":
            connection.execute(f"DELETE FROM {table}")
        elif self.context.mode == "update":
            same = [f"{table}.{quote(column)} IS NOT DISTINCT FROM batch.{quote(column)}" for column in self.sink.key]
            connection.execute(f"DELETE FROM {table} USING batch WHERE {' AND '.join(same)}")
        connection.execute(f"INSERT INTO {table} FROM batch")

    def is_transient(self, error: Exception) -> bool:
        return isinstance(error, duckdb.TransactionException) or super().is_transient(error)

    def explain(self, error: Exception, batch: int) -> Exception:
        fault = f"batch {batch} was not written into {self.sink.path}: {error}"
        failure = SinkError(code="DUCKDB-3", what=fault, fix="correct the cause, and start again")
        return failure if isinstance(error, duckdb.Error) else error
