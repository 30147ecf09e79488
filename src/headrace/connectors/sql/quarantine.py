"""Rows that a result table does not take: those whose key another row has, and the table that they are put into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.connectors.sql.dialect import StagedTable, WriteTarget, rows_of
from headrace.connectors.sql.limits import BadRow, bad_rows, mark_shared_keys
from headrace.connectors.sql.staging import BAD_COLUMNS, SHARED_KEY_FIX, Content, row_text
from headrace.connectors.sql.system_tables import MINE, QUARANTINE, OwnLines
from headrace.connectors.sql.types import ResultColumn, rows

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 1_000


class QuarantineTable(OwnLines):
    """The rows quarantined of one generation of a query."""

    def clear(self) -> None:
        """Forget the rows of earlier batches, as complete mode replaces the whole result."""
        self.run(f"DELETE FROM {QUARANTINE} WHERE {MINE}", *self.mine)

    def add(self, batch: int, bad: Iterable[BadRow]) -> int:
        """Set rows aside; returns how many."""
        statement = self.dialect.own(QUARANTINE.insert)
        head = self._head(batch)
        count, rows = 0, iter(bad)
        while some := list(islice(rows, _AT_ONCE)):
            self.connection.cursor().executemany(statement, [(*head, row.reason, row_text(row)) for row in some])
            count += len(some)
        return count

    def unknown(self, bad: Iterable[BadRow]) -> Iterator[BadRow]:
        """Yield the rows that are not quarantined yet: the history of a key is written whenever the key changes."""
        statement = f"SELECT 1 FROM {QUARANTINE} WHERE {MINE} AND row_values = ? LIMIT 1"
        return (row for row in bad if not self.select(statement, *self.mine, row_text(row)))

    def merge(self, batch: int, parts: Sequence[StagedTable]) -> int:
        """Set aside the rows of staging tables; returns how many."""
        for part in parts:
            columns = f"?, ?, ?, ?, ?, ?, {self.dialect.identifiers(BAD_COLUMNS)}"
            source = f"SELECT {columns} FROM {self.dialect.part_source(part)}"
            self.run(f"INSERT INTO {QUARANTINE} ({QUARANTINE.names}) {source}", *self._head(batch))
        return sum(part.rows for part in parts)

    def rows(self) -> Iterator[str]:
        """Yield the values of each row that was quarantined for this table, as JSON."""
        rows = self.select(f"SELECT row_values FROM {QUARANTINE} WHERE {MINE} ORDER BY batch", *self.mine)
        return (str(values) for (values,) in rows)

    def _head(self, batch: int) -> tuple[str, str, str, int, int, str]:
        return *self.life, batch, self.table


# Keys that are looked for by one statement.
_KEYS_AT_ONCE = 100


@dataclass(frozen=True)
class KeySearch:
    """The rows of a batch whose key another row of the batch or of its table has."""

    lines: OwnLines
    target: WriteTarget

    def shared_key(self, content: Content, *, appends: bool) -> tuple[str, str] | None:
        """Return what is wrong, and what to do, or None if no row has the key of another.

        appends: a row of the table counts too.
        """
        if not self.target.key:
            return None
        for row in (*self._doubles_in_table(content.table), *self._doubles_in_parts(content.parts)):
            fault = f"rows share the key ({', '.join(self.target.key)}), the first is {row}"
            return fault, SHARED_KEY_FIX
        for row in self._present_rows(content) if appends else ():
            fault = f"the row {row} has a key that table '{self.target.table}' already holds"
            return fault, "use mode update to replace rows, or a key that identifies each row"
        return None

    def take_out_existing(self, content: Content) -> tuple[Content, list[BadRow]]:
        """Return the batch without the rows whose key the table holds already, and those rows."""
        import pyarrow as pa

        places = list(self._places(content.table))
        reason = f"table '{self.target.table}' already holds the key ({', '.join(self.target.key)})"
        existing = content.table.take(pa.array(places, pa.int64()))
        bad = bad_rows(existing, self.target.columns, [reason] * len(places))
        kept = content.table.take(pa.array(sorted(set(range(content.table.num_rows)) - set(places)), pa.int64()))
        parts: list[StagedTable] = []
        for part in content.parts:
            rows = list(self._present_in_part(part))
            bad += [BadRow(reason, row.values) for row in rows]
            if rows:
                self.lines.run(f"DELETE FROM {self.lines.dialect.part_source(part)} WHERE {self._is_present(part)}")
            parts.append(StagedTable(part.name, part.rows - len(rows)))
        return replace(content, table=kept, parts=tuple(parts)), bad

    def _doubles_in_table(self, table: pa.Table) -> list[BadRow]:
        ordered = table.sort_by([(name, "ascending") for name in self.target.key])
        doubled = ordered.filter(mark_shared_keys(ordered, self.target.key)).slice(0, 1)
        return bad_rows(doubled, self.target.columns, [""] * doubled.num_rows)

    def _doubles_in_parts(self, parts: Sequence[StagedTable]) -> list[BadRow]:
        if not parts:
            return []
        dialect, columns = self.lines.dialect, self._key_columns
        names = dialect.identifiers(self.target.key)
        union = " UNION ALL ".join(f"SELECT {names} FROM {dialect.part_source(part)}" for part in parts)
        return self._rows(columns, f"FROM ({union}) AS parts GROUP BY {names} HAVING COUNT(*) > 1 LIMIT 1")

    def _present_rows(self, content: Content) -> Iterator[BadRow]:
        for place in self._places(content.table):
            yield from bad_rows(content.table.slice(place, 1), self.target.columns, [""])
        for part in content.parts:
            yield from self._present_in_part(part, "LIMIT 1")

    def _present_in_part(self, part: StagedTable, limit: str = "") -> list[BadRow]:
        source = self.lines.dialect.part_source(part)
        return self._rows(self.target.columns, f"FROM {source} WHERE {self._is_present(part)} {limit}")

    def _rows(self, columns: Sequence[ResultColumn], source: str) -> list[BadRow]:
        shown = ", ".join(map(self.lines.dialect.select_expression, columns))
        names = [column.name for column in columns]
        return [BadRow("", dict(zip(names, row, strict=True))) for row in self.lines.select(f"SELECT {shown} {source}")]

    def _is_present(self, part: StagedTable) -> str:
        """Return the condition that the table holds the key of a row of a staging table."""
        source, quote = self.lines.dialect.part_source(part), self.lines.quote
        same = " AND ".join(f"held.{quote(name)} = {source}.{quote(name)}" for name in self.target.key)
        return f"EXISTS (SELECT 1 FROM {quote(self.target.table)} AS held WHERE {same})"

    def _places(self, table: pa.Table) -> Iterator[int]:
        """Yield the numbers of the rows of `table` that have a key that the result table holds."""
        dialect, columns = self.lines.dialect, self._key_columns
        keys = rows(table.select([column.name for column in columns]), columns, dialect.forms)
        same = " AND ".join(f"{dialect.quote(column.name)} = {dialect.placeholder}" for column in columns)

        def has_any(some: Sequence[tuple[Any, ...]]) -> bool:
            condition = " OR ".join([f"({same})"] * len(some))
            statement = f"SELECT 1 FROM {dialect.quote(self.target.table)} WHERE {condition} LIMIT 1"
            return bool(list(rows_of(self.lines.connection, statement, [value for key in some for value in key])))

        for first in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[first : first + _KEYS_AT_ONCE]
            if has_any(some):
                yield from (first + at for at, key in enumerate(some) if has_any([key]))

    @property
    def _key_columns(self) -> list[ResultColumn]:
        return [column for column in self.target.columns if column.name in self.target.key]
