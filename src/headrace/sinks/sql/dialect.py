"""What the exactly-once mechanism asks of a database; one small file implements it for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from headrace.contract import Problem
from headrace.sinks.sql.types import ResultColumn


class Connection(Protocol):
    """A DB-API connection that commits each statement by itself unless a transaction was begun in SQL."""

    def cursor(self) -> Any: ...

    def close(self) -> Any: ...


@dataclass(frozen=True)
class ExistingColumn:
    """A column of a table that is already there. `required`: it takes no NULL and has no default."""

    name: str
    declared: str
    required: bool


@dataclass(frozen=True)
class ExistingTable:
    """A table that is already there, with each set of columns that no two rows may share."""

    columns: tuple[ExistingColumn, ...]
    unique: tuple[frozenset[str], ...]


class Dialect(Protocol):
    """One database's own ways; everything else is common to all of them."""

    name: ClassVar[str]
    placeholder: ClassVar[str]
    begin_write: ClassVar[str]
    begin_read: ClassVar[str]
    lock_row: ClassVar[str]
    key_text: ClassVar[str]
    long_text: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]]
    duplicates: ClassVar[tuple[type[Exception], ...]]

    def connect(self) -> Connection:
        """A new connection for writing; creates the database if that is its way."""
        ...

    def connect_to_read(self) -> Connection:
        """A new connection for reading an existing database."""
        ...

    def quote(self, name: str) -> str:
        """`name` as a quoted identifier."""
        ...

    def declare(self, column: ResultColumn, *, key: bool) -> str:
        """The type to declare for `column`."""
        ...

    def create_suffix(self, columns: Sequence[ResultColumn], key: Sequence[str]) -> str:
        """What follows the list of columns when the result table is created."""
        ...

    def existing(self, connection: Connection, table: str) -> ExistingTable | None:
        """The table as it is, or None."""
        ...

    def misfit(self, there: ExistingColumn, column: ResultColumn) -> str | None:
        """Why the existing column would not keep the values of `column` as they are, or None."""
        ...

    def upsert(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        """The statement that inserts a row or replaces the one with its key; all names come unquoted."""
        ...

    def insert(self, connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run `statement` for every row, in the fastest way there is."""
        ...

    def explain(self, fault: Exception) -> Problem:
        """The database's error as one sentence."""
        ...


def identifiers(dialect: Dialect, names: Sequence[str]) -> str:
    """`names` quoted, with commas between."""
    return ", ".join(dialect.quote(name) for name in names)


def rows_of(connection: Connection, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
    """The rows that `statement` gives."""
    cursor = connection.cursor()
    cursor.execute(statement, tuple(values))
    yield from cursor.fetchall()


def run(connection: Connection, statement: str, values: Sequence[Any] = ()) -> None:
    """Run `statement` for its effect."""
    connection.cursor().execute(statement, tuple(values))
