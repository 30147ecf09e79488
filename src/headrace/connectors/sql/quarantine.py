"""The table of rows that a result table did not take; they come in with the batch's own transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from headrace.connectors.sql.dialect import Connection, Dialect, StagedTable, rows_of, run
from headrace.connectors.sql.limits import BadRow
from headrace.connectors.sql.staging_task import BAD_COLUMNS, row_text
from headrace.connectors.sql.system_tables import QUARANTINE, QUARANTINE_FORM, OwnTable
from headrace.contract import SinkContext

_AT_ONCE = 1_000
_MINE = "application = ? AND query = ? AND generation = ? AND table_name = ?"


@dataclass(frozen=True)
class QuarantineTable:
    """The rows quarantined of one generation of a query; the caller holds the transaction."""

    TABLE: ClassVar[str] = QUARANTINE
    FORM: ClassVar[OwnTable] = QUARANTINE_FORM
    connection: Connection
    dialect: Dialect
    context: SinkContext
    table: str

    def clear(self) -> None:
        """Forget the rows of earlier batches, as complete mode replaces the whole result."""
        run(self.connection, self._own(f"DELETE FROM {self.TABLE} WHERE {_MINE}"), self._mine)

    def add(self, batch: int, bad: Iterable[BadRow]) -> int:
        """Set rows aside; returns how many."""
        marks = ", ".join("?" * len(self.FORM.columns))
        statement = self._own(f"INSERT INTO {self.TABLE} ({self.FORM.names}) VALUES ({marks})")
        head = self._head(batch)
        count, rows = 0, iter(bad)
        while some := list(islice(rows, _AT_ONCE)):
            self.connection.cursor().executemany(statement, [(*head, row.reason, row_text(row)) for row in some])
            count += len(some)
        return count

    def merge(self, batch: int, parts: Sequence[StagedTable]) -> int:
        """Set aside the rows of staging tables; returns how many."""
        for part in parts:
            columns = ", ".join(self.dialect.quote(name) for name in BAD_COLUMNS)
            statement = (
                f"INSERT INTO {self.TABLE} ({self.FORM.names}) SELECT ?, ?, ?, ?, ?, {columns} "
                f"FROM {self.dialect.part_source(part)}"
            )
            run(self.connection, self._own(statement), self._head(batch))
        return sum(part.rows for part in parts)

    def rows(self) -> Iterator[str]:
        """The values of each row that was quarantined for this table, as JSON."""
        statement = f"SELECT row_values FROM {self.TABLE} WHERE {_MINE} ORDER BY batch"
        found: Iterator[tuple[Any, ...]] = rows_of(self.connection, self._own(statement), self._mine)
        return (str(row[0]) for row in found)

    def _head(self, batch: int) -> tuple[str, str, int, int, str]:
        return self.context.application, self.context.query, self.context.generation, batch, self.table

    @property
    def _mine(self) -> tuple[str, str, int, str]:
        return self.context.application, self.context.query, self.context.generation, self.table

    def _own(self, statement: str) -> str:
        return statement.replace("?", self.dialect.placeholder)
