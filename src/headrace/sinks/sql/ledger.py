"""The ledger in a sink's own database: which batches are in, whose turn it is, whose table it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from headrace.contract import SinkRun
from headrace.sinks.sql.dialect import Connection, Dialect, rows_of, run

LEDGER = "_headrace_ledger"
EPOCHS = "_headrace_epochs"
TABLES = "_headrace_tables"
OWN_PREFIX = "_headrace_"

# Only the last batch can come again; older lines are for people, and end some time.
KEPT_BATCHES = 10_000
_PRUNE_EVERY = 100


@dataclass(frozen=True)
class Line:
    """The last line of the ledger for one generation of a query."""

    batch: int
    checkpoint: str


@dataclass(frozen=True)
class Owner:
    """Which query's result a table holds, and the result's schema as Spark's JSON."""

    query: str
    generation: int
    schema: str


@dataclass(frozen=True)
class Ledger:
    """Reads and writes the ledger's three tables on one connection; the caller holds the transaction."""

    connection: Connection
    dialect: Dialect

    def create(self) -> None:
        """Create the tables that are not there."""
        text, long_text = self.dialect.key_text, self.dialect.long_text
        self._run(
            f"CREATE TABLE IF NOT EXISTS {LEDGER} (query {text} NOT NULL, generation INTEGER NOT NULL, "
            f"batch BIGINT NOT NULL, epoch BIGINT NOT NULL, checkpoint {text} NOT NULL, row_count BIGINT NOT NULL, "
            f"fingerprint {text} NOT NULL, committed_at {text} NOT NULL, PRIMARY KEY (query, generation, batch))"
        )
        self._run(f"CREATE TABLE IF NOT EXISTS {EPOCHS} (query {text} NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL)")
        self._run(
            f"CREATE TABLE IF NOT EXISTS {TABLES} (table_name {text} NOT NULL PRIMARY KEY, query {text} NOT NULL, "
            f"generation INTEGER NOT NULL, spark_schema {long_text} NOT NULL)"
        )

    def last(self, life: SinkRun) -> Line | None:
        """The last batch that is in."""
        found = self._rows(
            f"SELECT batch, checkpoint FROM {LEDGER} WHERE query = ? AND generation = ? ORDER BY batch DESC LIMIT 1",
            life.query,
            life.generation,
        )
        return Line(int(found[0][0]), str(found[0][1])) if found else None

    def holds(self, life: SinkRun, batch: int) -> bool:
        """Whether `batch` is in."""
        statement = f"SELECT 1 FROM {LEDGER} WHERE query = ? AND generation = ? AND batch = ?"
        return bool(self._rows(statement, life.query, life.generation, batch))

    def add(self, life: SinkRun, batch: int, *, epoch: int, checkpoint: str, rows: int) -> None:
        """Enter `batch`; together with its rows it becomes visible at the commit."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._run(
            f"INSERT INTO {LEDGER} (query, generation, batch, epoch, checkpoint, row_count, fingerprint, committed_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(life.query, life.generation, batch, epoch, checkpoint, rows, life.fingerprint, now),
        )
        if batch % _PRUNE_EVERY == 0:
            self._run(
                f"DELETE FROM {LEDGER} WHERE query = ? AND generation = ? AND batch <= ?",
                *(life.query, life.generation, batch - KEPT_BATCHES),
            )

    def epoch(self, query: str, *, lock: bool = False) -> int:
        """The epoch of the newest driver of `query`; 0 before the first."""
        suffix = self.dialect.lock_row if lock else ""
        found = self._rows(f"SELECT epoch FROM {EPOCHS} WHERE query = ?{suffix}", query)
        return int(found[0][0]) if found else 0

    def take_epoch(self, query: str) -> int:
        """Begin the next epoch of `query`: from the commit on, older drivers can write nothing."""
        newest = self.epoch(query, lock=True) + 1
        self._run(self.dialect.upsert(EPOCHS, ("query", "epoch"), ("query",)), query, newest)
        return newest

    def owner(self, table: str) -> Owner | None:
        """Whose result `table` holds, as far as is known."""
        found = self._rows(f"SELECT query, generation, spark_schema FROM {TABLES} WHERE table_name = ?", table)
        return Owner(str(found[0][0]), int(found[0][1]), str(found[0][2])) if found else None

    def own(self, table: str, owner: Owner) -> None:
        """Write down whose result `table` holds from now on."""
        statement = self.dialect.upsert(TABLES, ("table_name", "query", "generation", "spark_schema"), ("table_name",))
        self._run(statement, table, owner.query, owner.generation, owner.schema)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return list(rows_of(self.connection, self._own(statement), values))

    def _run(self, statement: str, *values: object) -> None:
        run(self.connection, self._own(statement), values)

    def _own(self, statement: str) -> str:
        return statement.replace("?", self.dialect.placeholder)
