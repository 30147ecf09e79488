"""The tables of Headrace's own beside the results: made when they are missing, and widened when they are older."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import Finding, SinkFault
from headrace.sinks.sql.dialect import Connection, Dialect, run

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

    def make(self, connection: Connection, dialect: Dialect) -> None:
        """Create the table, or add the columns that an older one lacks; a whole one needs no right to do either.

        Raises SinkFault if what it holds could be changed, or lost while the result's table is not.
        """
        there = dialect.existing(connection, self.name)
        if there is None:
            parts = [_declared(column, dialect) for column in self.columns]
            if self.key:
                parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
            suffix = dialect.create_suffix((), ())
            run(connection, f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(parts)}){suffix}")
            return
        refused = list(there.refusals(self.name, [column.name for column in self.columns]))
        if refused:
            what = f"Headrace's own table '{self.name}' cannot keep what it must: {refused[0].what}"
            raise SinkFault(Finding(code=refused[0].code, what=what, fix=refused[0].fix))
        known = {column.name.lower() for column in there.columns}
        for column in self.columns:
            if column.name not in known:
                run(connection, f"ALTER TABLE {self.name} ADD COLUMN {_declared(column, dialect)}")


def _declared(column: OwnColumn, dialect: Dialect) -> str:
    types = {"text": dialect.key_text, "long text": dialect.long_text, "number": "BIGINT"}
    return f"{column.name} {types[column.kind]}{'' if column.nullable else ' NOT NULL'}"
