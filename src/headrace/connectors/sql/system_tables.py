"""Headrace's own tables next to the results, the ledger's among them: their columns, and how they are made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from headrace.connectors.sql.dialect import Connection, Dialect, rows_of, run
from headrace.connectors.sql.limits import ExistingTable
from headrace.contract import SinkContext
from headrace.errors import SinkError

OWN_PREFIX = "_headrace_"


@dataclass(frozen=True)
class OwnColumn:
    """A column: a short text (which a key can hold), a long one, a whole number, or one that counts the rows."""

    name: str
    kind: Literal["text", "long text", "number", "counter"]
    nullable: bool = False


@dataclass(frozen=True)
class OwnTable:
    """A table's name, columns and primary key; as text it is its name."""

    name: str
    columns: tuple[OwnColumn, ...]
    key: tuple[str, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> str:
        """The columns that a row gives values of."""
        return ", ".join(column.name for column in self.columns if column.kind != "counter")

    @property
    def insert(self) -> str:
        """The statement, with question marks, that inserts a row."""
        marks = ", ".join("?" * (self.names.count(",") + 1))
        return f"INSERT INTO {self.name} ({self.names}) VALUES ({marks})"

    def columns_in(self, dialect: Dialect) -> tuple[OwnColumn, ...]:
        """Return the columns that the table has there."""
        return tuple(column for column in self.columns if column.kind != "counter" or dialect.counter)

    def missing_columns(self, connection: Connection, dialect: Dialect) -> tuple[OwnColumn, ...]:
        """Return the columns that are missing; all of them where there is no table.

        Raises SinkError if what it holds could be changed, or lost while the result's table is not.
        """
        there = dialect.describe_table(connection, self.name)
        columns = self.columns_in(dialect)
        if there is None:
            return columns
        refused = list(there.refusals(self.name, [column.name for column in self.columns]))
        if refused:
            fault = f"Headrace's own table '{self.name}' cannot keep what it must: {refused[0].what}"
            raise SinkError(code="HR406", what=fault, fix=refused[0].fix)
        present = {column.name.lower() for column in there.columns}
        if "query_id" not in present and {"query", "application"} <= present:
            fault = f"Headrace's own table '{self.name}' was made by version 0.1.0, which knew queries by name alone"
            fix = "write to another database or schema; or drop this table, its sisters and the results"
            raise SinkError(code="HR407", what=fault, fix=fix)
        return tuple(column for column in columns if column.name not in present)

    def make(self, connection: Connection, dialect: Dialect) -> None:
        """Create the table; raises SinkError where one of its name lacks columns."""
        missing, columns = self.missing_columns(connection, dialect), self.columns_in(dialect)
        if missing == columns:
            parts = [_declare(column, dialect) for column in columns]
            if self.key:
                parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
            suffix = dialect.create_suffix((), ())
            run(connection, f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(parts)}){suffix}")
        elif missing:
            fault = f"Headrace's own table '{self.name}' lacks columns ({', '.join(column.name for column in missing)})"
            fix = "look which program made it; name another database or schema, or drop the table if nothing uses it"
            raise SinkError(code="HR407", what=fault, fix=fix)


def _texts(*names: str) -> tuple[OwnColumn, ...]:
    return tuple(OwnColumn(name, "text") for name in names)


def _numbers(*names: str) -> tuple[OwnColumn, ...]:
    return tuple(OwnColumn(name, "number") for name in names)


def own_name(kind: str, context: SinkContext, table: str) -> str:
    """Return the name of a table of this kind for the context's generation, the same for any case of `table`."""
    whose = f"{context.application}/{context.query_id}/{table.lower()}"
    return f"{OWN_PREFIX}{kind}_{hashlib.sha256(whose.encode()).hexdigest()[:16]}_g{context.generation}"


# Whose life a line is of.
_LIFE = (*_texts("application", "query_id", "query"), *_numbers("generation"))
_LIFE_KEY = ("application", "query_id", "generation", "table_name")
EPOCHS = OwnTable(
    "_headrace_epochs",
    (
        *(*_texts("application", "query_id", "query"), *_numbers("epoch")),
        # The newest change of the query, by its record in the query's log.
        OwnColumn("change_number", "number", nullable=True),
        OwnColumn("change_of", "number", nullable=True),
        OwnColumn("change_token", "text", nullable=True),
        OwnColumn("change_way", "text", nullable=True),
    ),
    key=("application", "query_id"),
)
LEDGER = OwnTable(
    "_headrace_ledger",
    (
        *(*_LIFE, *_texts("table_name"), *_numbers("batch", "epoch"), *_texts("checkpoint"), *_numbers("row_count")),
        OwnColumn("quarantined", "number", nullable=True),
        OwnColumn("watermark", "text", nullable=True),
        *_texts("fingerprint", "committed_at"),
        OwnColumn("digest", "text", nullable=True),
        OwnColumn("chain", "text", nullable=True),
        OwnColumn("planned", "long text", nullable=True),
    ),
    key=(*_LIFE_KEY, "batch"),
)
TABLES = OwnTable(
    "_headrace_tables",
    (
        *_texts("table_name", "application", "project", "query_id", "query"),
        *_numbers("generation"),
        OwnColumn("spark_schema", "long text"),
    ),
    key=("table_name",),
)
QUARANTINE = OwnTable(
    "_headrace_quarantine",
    (
        *(*_LIFE, *_numbers("batch"), *_texts("table_name")),
        OwnColumn("reason", "long text"),
        OwnColumn("row_values", "long text"),
        OwnColumn("row_id", "counter"),
    ),
    key=(),
)
# Made when late rows are brought back for the first time; most results never have any.
REPLAYS = OwnTable(
    "_headrace_replays",
    (
        *(*_LIFE, *_texts("table_name", "checkpoint")),
        *_numbers("batch", "late_rows", "rows_written", "rows_deleted", "quarantined"),
        *_texts("replayed_at"),
    ),
    key=(*_LIFE_KEY, "checkpoint", "batch"),
)
# Made for the first sink that keeps what a rewind needs. images: the table of the rows that were there before.
BEFORE = OwnTable(
    "_headrace_before",
    (
        *(*_LIFE, *_texts("table_name", "images"), *_numbers("step", "batch")),
        *(*_texts("kind"), *_numbers("whole", "void"), *_texts("at")),
    ),
    key=(*_LIFE_KEY, "step"),
)
# Made for the first sink of change data. aside: the table of what is remembered of the changes. has_gaps: whether a row
# of the result may have values that are older than the row.
CHANGES = OwnTable(
    "_headrace_changes",
    (
        *(*_LIFE, *_texts("table_name", "aside"), *_numbers("batch", "has_gaps")),
        *_numbers("inserts", "updates", "deletes", "ignored", "truncates"),
    ),
    key=(*_LIFE_KEY, "batch"),
)
# The epochs first: an older driver holds its epoch's lock before it wants the ledger, and would be crossed otherwise.
FORMS = (EPOCHS, LEDGER, TABLES, QUARANTINE)


# The lines of one life and its table, by `OwnLines.mine`.
MINE = "application = ? AND query_id = ? AND generation = ? AND table_name = ?"


_Lines = TypeVar("_Lines", bound="OwnLines")


@dataclass(frozen=True)
class OwnLines:
    """The lines of one generation and its table in Headrace's own tables; the caller holds the transaction."""

    connection: Connection
    dialect: Dialect
    context: SinkContext
    table: str

    @property
    def mine(self) -> tuple[str, str, int, str]:
        """Whose lines they are, as `MINE` asks for it."""
        return self.context.application, self.context.query_id, self.context.generation, self.table

    @property
    def life(self) -> tuple[str, str, str, int]:
        """The first values of a new line; the name of the query is a label that old lines keep."""
        context = self.context
        return context.application, context.query_id, context.query, context.generation

    @classmethod
    def next_to(cls: type[_Lines], lines: OwnLines) -> _Lines:
        """Return lines of the same life and table, on the same connection."""
        return cls(lines.connection, lines.dialect, lines.context, lines.table)

    def describe_table(self, name: str) -> ExistingTable | None:
        return self.dialect.describe_table(self.connection, name)

    def has_table(self, table: str | OwnTable) -> bool:
        return self.describe_table(str(table)) is not None

    def quote(self, name: str) -> str:
        return self.dialect.quote(name)

    def select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; question marks stand for the values."""
        return list(rows_of(self.connection, self.dialect.own(statement) if values else statement, values))

    def count_rows(self, table: str) -> int:
        return int(self.select(f"SELECT COUNT(*) FROM {self.quote(table)}")[0][0])

    def run(self, statement: str, *values: object) -> int:
        """Run a statement, whose question marks stand for the values; returns how many rows it has written."""
        return run(self.connection, self.dialect.own(statement) if values else statement, values)

    def enter(self, table: OwnTable, *values: object) -> None:
        self.run(table.insert, *values)


def make_all(connection: Connection, dialect: Dialect, tables: Sequence[OwnTable]) -> None:
    """Make what is missing of `tables`; of several drivers that start at once, one does it and the others wait.

    Where nothing is missing, no right to make or change tables is needed.
    """
    if not [table for table in tables if table.missing_columns(connection, dialect)]:
        return
    with exclusive(connection, dialect):
        for table in tables:
            table.make(connection, dialect)


@contextmanager
def exclusive(connection: Connection, dialect: Dialect) -> Iterator[None]:
    """Keep other drivers from changing Headrace's own tables in the block."""
    for statement in dialect.lock_own_tables:
        run(connection, statement)
    try:
        yield
    except BaseException:
        for statement in dialect.give_up_own_tables:
            with suppress(*dialect.errors):
                run(connection, statement)
        raise
    for statement in dialect.unlock_own_tables:
        run(connection, statement)


def _declare(column: OwnColumn, dialect: Dialect) -> str:
    if column.kind == "counter":
        return f"{column.name} {dialect.counter}"
    types = {"text": dialect.key_text, "long text": dialect.long_text, "number": "BIGINT"}
    return f"{column.name} {types[column.kind]}{'' if column.nullable else ' NOT NULL'}"
