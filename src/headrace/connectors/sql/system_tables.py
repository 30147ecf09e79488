"""The tables of Headrace's own beside the results: made when they are missing, and widened when they are older."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from headrace.connectors.sql.dialect import Connection, Dialect, run
from headrace.errors import Finding, SinkError

OWN_PREFIX = "_headrace_"


@dataclass(frozen=True)
class OwnColumn:
    """A column: a short text (which a key can hold), a long one, or a whole number."""

    name: str
    kind: Literal["text", "long text", "number"]
    nullable: bool = False


@dataclass(frozen=True)
class OwnTable:
    """A table's name, columns and primary key."""

    name: str
    columns: tuple[OwnColumn, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> str:
        return ", ".join(column.name for column in self.columns)

    def missing_columns(self, connection: Connection, dialect: Dialect) -> tuple[OwnColumn, ...]:
        """The columns that are missing; all of them where there is no table.

        Raises SinkError if what it holds could be changed, or lost while the result's table is not.
        """
        there = dialect.existing(connection, self.name)
        if there is None:
            return self.columns
        refused = list(there.refusals(self.name, [column.name for column in self.columns]))
        if refused:
            what = f"Headrace's own table '{self.name}' cannot keep what it must: {refused[0].what}"
            raise SinkError(Finding(code=refused[0].code, what=what, fix=refused[0].fix))
        known = {column.name.lower() for column in there.columns}
        return tuple(column for column in self.columns if column.name not in known)

    def make(self, connection: Connection, dialect: Dialect) -> None:
        """Create the table, or bring an older one to this form, in one step that is done or not done.

        An older Headrace then fails at its next line, since it gives no value for a column that needs one.
        """
        missing = self.missing_columns(connection, dialect)
        if len(missing) == len(self.columns):
            parts = [declared(column, dialect) for column in self.columns]
            if self.key:
                parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
            suffix = dialect.create_suffix((), ())
            run(connection, f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(parts)}){suffix}")
        elif any(not column.nullable for column in missing):
            columns = {column.name: declared(column, dialect) for column in self.columns}
            dialect.widen(connection, self.name, columns, [column.name for column in missing], self.key)
        else:
            for column in missing:
                run(connection, f"ALTER TABLE {self.name} ADD COLUMN {declared(column, dialect)}")


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
    """Let no other driver change Headrace's own tables meanwhile."""
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


def declared(column: OwnColumn, dialect: Dialect) -> str:
    """The column as a statement declares it."""
    types = {"text": dialect.key_text, "long text": dialect.long_text, "number": "BIGINT"}
    return f"{column.name} {types[column.kind]}{'' if column.nullable else ' NOT NULL'}"
