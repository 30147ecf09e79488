"""Write the result into a table of a SQLite file, exactly once."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from headrace.contract import OUTPUT_MODES, OutputMode, Problem, SinkFacts, SinkRun, Snapshot
from headrace.sinks.sql import exactly_once
from headrace.sinks.sql.batches import BatchWriter
from headrace.sinks.sql.dialect import Connection, ExistingColumn, ExistingTable, identifiers, rows_of
from headrace.sinks.sql.ledger import OWN_PREFIX
from headrace.sinks.sql.result_table import ResultTable
from headrace.sinks.sql.types import ResultColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BUSY_SECONDS = 10.0
# As many digits of a decimal as SQLite's own number keeps exactly, so that SQL can compare and add them.
EXACT_DIGITS = 15

_DECLARED = {"boolean": "BOOLEAN", "integer": "INTEGER", "float": "REAL", "double": "REAL", "binary": "BLOB"}
_FAULTS = (
    ("database is locked", "is locked by another process", "end the other writer's transaction, then start again"),
    ("is full", "cannot grow: the disk is full", "free disk space, then start again; nothing of the batch was written"),
    ("readonly database", "may only be read", "give this user the right to write the file and its directory"),
    ("unable to open", "cannot be opened", "create its directory and make it writable"),
    ("not a database", "is no SQLite database", "name another file"),
    ("malformed", "is damaged", "restore it from a copy"),
    ("disk I/O error", "cannot be written: the disk reports an error", "look at the disk, then start again"),
    ("no such table", "holds no result of this query yet", "run the query first"),
)


@dataclass(frozen=True, kw_only=True)
class Sqlite:
    """A table in the SQLite file `path`; each batch is one transaction with its line in the ledger.

    append inserts rows (a `key` makes a second row of one key a fault), update replaces the row with the same `key`,
    complete replaces the whole table. Readers in other processes see whole batches only. Timestamps are ISO 8601 texts
    in UTC with microseconds, dates ISO texts, nested values JSON; NaN is the text 'NaN', which SQLite, like Spark,
    sorts after every number. A decimal of up to 15 digits is a number, a longer one exact text.
    """

    facts: ClassVar[SinkFacts] = SinkFacts(
        modes=frozenset(OUTPUT_MODES), transactional=True, idempotent=True, readable_back=True
    )
    path: str = field(metadata={"path": True})
    table: str
    key: Sequence[str] = ()
    # What `prepare` found out for `write`: the table and the epoch, by query and generation.
    _ready: dict[tuple[str, int], tuple[ResultTable, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def problems(self, mode: OutputMode) -> Iterator[Problem]:
        if mode == "update" and not self.key:
            yield Problem(
                code="HR403",
                what=f"update mode into table '{self.table}' needs a key, to find the row to replace",
                fix="give key: the columns that the query groups by",
            )
        if not self.table or self.table.lower().startswith((OWN_PREFIX, "sqlite_")):
            what = f"a result table may not be called '{self.table}'"
            yield Problem(code="HR401", what=what, fix="choose another name")
        if len(set(self.key)) != len(self.key):
            yield Problem(code="HR401", what="the key names a column twice", fix="name each column once")

    def prepare(self, frame: DataFrame, run: SinkRun) -> None:
        table = exactly_once.result_table(self.table, self.key, frame.schema, run)
        epoch = exactly_once.prepare(SqliteDialect(self.path), table, frame.schema.json(), run)
        self._ready[run.query, run.generation] = (table, epoch)

    def write(self, writer: DataStreamWriter, run: SinkRun) -> DataStreamWriter:
        table, epoch = self._ready[run.query, run.generation]
        return writer.foreachBatch(BatchWriter(dialect=SqliteDialect(self.path), table=table, run=run, epoch=epoch))

    def snapshot(self, spark: SparkSession, run: SinkRun) -> Snapshot:
        return exactly_once.snapshot(SqliteDialect(self.path), self.table, self.key, spark, run)


@dataclass(frozen=True)
class SqliteDialect:
    """SQLite's own ways."""

    name: ClassVar[str] = "SQLite"
    placeholder: ClassVar[str] = "?"
    begin_write: ClassVar[str] = "BEGIN IMMEDIATE"
    begin_read: ClassVar[str] = "BEGIN"
    lock_row: ClassVar[str] = ""
    key_text: ClassVar[str] = "TEXT"
    long_text: ClassVar[str] = "TEXT"
    errors: ClassVar[tuple[type[Exception], ...]] = (sqlite3.Error,)
    duplicates: ClassVar[tuple[type[Exception], ...]] = (sqlite3.IntegrityError,)
    path: str
    busy_seconds: float = BUSY_SECONDS

    def connect(self) -> Connection:
        connection = self._open(self.path)
        # Readers go on while a batch is written, and a committed batch outlives a power cut.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def connect_to_read(self) -> Connection:
        return self._open(f"{Path(self.path).absolute().as_uri()}?mode=ro", uri=True)

    def _open(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        # Spark calls back from more than one thread, though never from two at once.
        return sqlite3.connect(
            database, uri=uri, timeout=self.busy_seconds, isolation_level=None, check_same_thread=False
        )

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def declare(self, column: ResultColumn, *, key: bool) -> str:
        if column.kind == "decimal" and column.precision <= EXACT_DIGITS:
            return f"DECIMAL({column.precision},{column.scale})"
        return _DECLARED.get(column.kind, "TEXT")

    def create_suffix(self, columns: Sequence[ResultColumn], key: Sequence[str]) -> str:
        """Rows in the key's own tree save half of the writing, as long as rows are small."""
        small = all(column.kind not in ("json", "binary") for column in columns)
        return " WITHOUT ROWID" if key and small else ""

    def existing(self, connection: Connection, table: str) -> ExistingTable | None:
        quoted = self.quote(table)
        found = list(rows_of(connection, f"PRAGMA table_info({quoted})"))
        if not found:
            return None
        columns = tuple(
            ExistingColumn(str(name), str(declared), bool(required) and default is None)
            for _, name, declared, required, default, _ in found
        )
        unique = [frozenset(str(row[1]) for row in found if row[5])]
        for _, index, is_unique, _, partial in rows_of(connection, f"PRAGMA index_list({quoted})"):
            if is_unique and not partial:
                members = rows_of(connection, f"PRAGMA index_info({self.quote(str(index))})")
                unique.append(frozenset(str(name) for _, _, name in members))
        return ExistingTable(columns, tuple(unique))

    def misfit(self, there: ExistingColumn, column: ResultColumn) -> str | None:
        affinity = _affinity(there.declared)
        if column.kind in ("boolean", "integer", "float", "double"):
            return "which turns numbers into text" if affinity == "TEXT" else None
        if column.kind == "binary" or (column.kind == "decimal" and column.precision <= EXACT_DIGITS):
            return None
        if affinity in ("TEXT", "BLOB"):
            return None
        return f"which turns text that looks like a number into one; declare it {self.declare(column, key=False)}"

    def upsert(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        others = [self.quote(name) for name in columns if name not in key]
        change = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others) if others else "NOTHING"
        return (
            f"INSERT INTO {self.quote(table)} ({identifiers(self, columns)}) "
            f"VALUES ({', '.join('?' * len(columns))}) ON CONFLICT ({identifiers(self, key)}) DO {change}"
        )

    def insert(self, connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        cast(sqlite3.Connection, connection).executemany(statement, rows)

    def explain(self, fault: Exception) -> Problem:
        for sign, what, fix in _FAULTS:
            if sign in str(fault):
                return Problem(code="HR405", what=f"the SQLite file '{self.path}' {what}", fix=fix)
        return Problem(code="HR405", what=f"the SQLite file '{self.path}' refused the batch: {fault}")


def _affinity(declared: str) -> str:
    """What SQLite makes of a declared type (https://sqlite.org/datatype3.html, 3.1)."""
    for pattern, affinity in (
        ("INT", "INTEGER"),
        ("CHAR|CLOB|TEXT", "TEXT"),
        ("BLOB|^$", "BLOB"),
        ("REAL|FLOA|DOUB", "REAL"),
    ):
        if re.search(pattern, declared.upper()):
            return affinity
    return "NUMERIC"
