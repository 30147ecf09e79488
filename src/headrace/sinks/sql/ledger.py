"""The ledger in a sink's own database: which batches are in, whose turn it is, whose table it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from headrace.contract import SinkRun
from headrace.sinks.sql.dialect import Connection, Dialect, rows_of, run
from headrace.sinks.sql.own_tables import OwnColumn, OwnTable

LEDGER = "_headrace_ledger"
EPOCHS = "_headrace_epochs"
TABLES = "_headrace_tables"
REPLAYS = "_headrace_replays"

FORMS = (
    OwnTable(
        LEDGER,
        (
            OwnColumn("query", "text"),
            OwnColumn("generation", "number"),
            OwnColumn("batch", "number"),
            OwnColumn("epoch", "number"),
            OwnColumn("checkpoint", "text"),
            OwnColumn("row_count", "number"),
            OwnColumn("quarantined", "number", nullable=True),
            OwnColumn("watermark", "text", nullable=True),
            OwnColumn("fingerprint", "text"),
            OwnColumn("committed_at", "text"),
        ),
        key=("query", "generation", "batch"),
    ),
    OwnTable(EPOCHS, (OwnColumn("query", "text"), OwnColumn("epoch", "number")), key=("query",)),
    OwnTable(
        TABLES,
        (
            OwnColumn("table_name", "text"),
            OwnColumn("query", "text"),
            OwnColumn("generation", "number"),
            OwnColumn("spark_schema", "long text"),
        ),
        key=("table_name",),
    ),
)

# Made when late rows are brought back for the first time; most results never have any.
REPLAY_FORM = OwnTable(
    REPLAYS,
    (
        OwnColumn("query", "text"),
        OwnColumn("generation", "number"),
        OwnColumn("checkpoint", "text"),
        OwnColumn("batch", "number"),
        OwnColumn("late_rows", "number"),
        OwnColumn("rows_written", "number"),
        OwnColumn("rows_deleted", "number"),
        OwnColumn("quarantined", "number"),
        OwnColumn("replayed_at", "text"),
    ),
    key=("query", "generation", "checkpoint", "batch"),
)

# Only the last batch can come again; older lines are for people, and end some time.
KEPT_BATCHES = 10_000
_PRUNE_EVERY = 100


@dataclass(frozen=True)
class Line:
    """The last line of the ledger for one generation of a query."""

    batch: int
    checkpoint: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the ledger keeps of a batch. watermark: that in force during the batch, ISO 8601 in UTC; None: none yet."""

    batch: int
    epoch: int
    checkpoint: str
    rows: int
    quarantined: int
    watermark: str | None


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What the ledger keeps of late rows that were brought back, those of the batches up to `batch`."""

    checkpoint: str
    batch: int
    late: int
    written: int
    deleted: int
    quarantined: int


@dataclass(frozen=True)
class Owner:
    """Which query's result a table holds, and the result's schema as Spark's JSON."""

    query: str
    generation: int
    schema: str


@dataclass(frozen=True)
class Ledger:
    """Reads and writes the ledger's tables on one connection; the caller holds the transaction."""

    connection: Connection
    dialect: Dialect

    def create(self) -> None:
        """Create the tables that are not there."""
        for form in FORMS:
            form.make(self.connection, self.dialect)

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

    def add(self, life: SinkRun, entry: Entry) -> None:
        """Enter a batch; together with its rows it becomes visible at the commit."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        names = FORMS[0].names
        batch = entry.batch
        self._run(
            f"INSERT INTO {LEDGER} ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(life.query, life.generation, batch, entry.epoch, entry.checkpoint),
            *(entry.rows, entry.quarantined, entry.watermark, life.fingerprint, now),
        )
        if batch % _PRUNE_EVERY == 0:
            self._run(
                f"DELETE FROM {LEDGER} WHERE query = ? AND generation = ? AND batch <= ?",
                *(life.query, life.generation, batch - KEPT_BATCHES),
            )

    def replayed(self, life: SinkRun, checkpoint: str) -> int | None:
        """The last batch of this very checkpoint whose late rows were brought back."""
        if self.dialect.existing(self.connection, REPLAYS) is None:
            return None
        statement = f"SELECT max(batch) FROM {REPLAYS} WHERE query = ? AND generation = ? AND checkpoint = ?"
        (found,) = self._rows(statement, life.query, life.generation, checkpoint)
        return None if found[0] is None else int(found[0])

    def add_replay(self, life: SinkRun, replay: Replay) -> None:
        """Enter late rows that were brought back; they become visible at the commit."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._run(
            f"INSERT INTO {REPLAYS} ({REPLAY_FORM.names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(life.query, life.generation, replay.checkpoint, replay.batch, replay.late),
            *(replay.written, replay.deleted, replay.quarantined, now),
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
