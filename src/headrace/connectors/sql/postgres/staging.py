"""Rows on their way into a staging table of PostgreSQL, by COPY."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import psycopg

from headrace.connectors.sql.dialect import (
    Dialect,
)
from headrace.connectors.sql.types import ResultColumn, lines

if TYPE_CHECKING:
    import pyarrow as pa


class CopyStager:
    """Rows on their way into an unlogged table: created, filled and committed in one transaction or not at all."""

    def __init__(self, dialect: Dialect, name: str, columns: Sequence[ResultColumn]) -> None:
        self.columns, self.forms, table = columns, dialect.forms, dialect.quote(name)
        declared = ", ".join(f"{dialect.quote(column.name)} {dialect.declare(column, columns)}" for column in columns)
        self.connection = cast("psycopg.Connection[Any]", dialect.connect())
        self.connection.execute("BEGIN")
        create = f"CREATE UNLOGGED TABLE {table} ({declared}) WITH (autovacuum_enabled = off)"
        self.connection.cursor().execute(create, ())
        # Frozen rows need no second look at whether their transaction was committed.
        self.copying = self.connection.cursor().copy(f"COPY {table} FROM STDIN WITH (FREEZE)".replace("%%", "%"))
        self.copy = self.copying.__enter__()

    def add(self, table: pa.Table) -> None:
        self.copy.write(lines(table, self.columns, self.forms))

    def finish(self) -> None:
        self.copying.__exit__(None, None, None)
        self.connection.execute("COMMIT")
        self.connection.close()

    def give_up(self) -> None:
        # Closing the connection rolls the table back.
        with suppress(psycopg.Error):
            self.connection.close()
