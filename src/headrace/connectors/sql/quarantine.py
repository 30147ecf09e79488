"""Rows that a result table does not take: those whose key another row has, and the table that they are put into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.connectors.sql.dialect import Connection, Dialect, StagedTable, WriteTarget, rows_of, run
from headrace.connectors.sql.limits import BadRow, bad_rows, shared
from headrace.connectors.sql.staging import BAD_COLUMNS, SHARED_KEY_FIX, Content, row_text
from headrace.connectors.sql.system_tables import MINE, QUARANTINE, QUARANTINE_FORM, OwnLines
from headrace.connectors.sql.types import rows

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
        statement = self.dialect.own(QUARANTINE_FORM.insert)
        head = self._head(batch)
        count, rows = 0, iter(bad)
        while some := list(islice(rows, _AT_ONCE)):
            self.connection.cursor().executemany(statement, [(*head, row.reason, row_text(row)) for row in some])
            count += len(some)
        return count

    def merge(self, batch: int, parts: Sequence[StagedTable]) -> int:
        """Set aside the rows of staging tables; returns how many."""
        for part in parts:
            source = (
                f"SELECT ?, ?, ?, ?, ?, {self.dialect.identifiers(BAD_COLUMNS)} FROM {self.dialect.part_source(part)}"
            )
            self.run(f"INSERT INTO {QUARANTINE} ({QUARANTINE_FORM.names}) {source}", *self._head(batch))
        return sum(part.rows for part in parts)

    def rows(self) -> Iterator[str]:
        """The values of each row that was quarantined for this table, as JSON."""
        found = self.select(f"SELECT row_values FROM {QUARANTINE} WHERE {MINE} ORDER BY batch", *self.mine)
        return (str(values) for (values,) in found)

    def _head(self, batch: int) -> tuple[str, str, int, int, str]:
        return self.context.application, self.context.query, self.context.generation, batch, self.table


# Keys that are looked for by one statement.
_KEYS_AT_ONCE = 100


def shared_key(
    connection: Connection, dialect: Dialect, target: WriteTarget, content: Content, *, appends: bool
) -> tuple[str, str] | None:
    """What is wrong, and what to do, or None if no row has the key of another; `appends`: one of the table counts."""
    if not target.key:
        return None
    key = ", ".join(target.key)
    for part_rows in (_twice_in_table(target, content.table), _twice_in_parts(connection, dialect, target, content)):
        for row in part_rows:
            what = f"rows share the key ({key}), the first is {row}"
            return what, SHARED_KEY_FIX
    for row in _existing(connection, dialect, target, content) if appends else ():
        what = f"the row {row} has a key that table '{target.table}' already holds"
        return what, "use mode update to replace rows, or a key that identifies each row"
    return None


def take_out_existing(
    connection: Connection, dialect: Dialect, target: WriteTarget, content: Content
) -> tuple[Content, Iterator[BadRow]]:
    """The batch without the rows whose key the table holds already, and those rows."""
    import pyarrow as pa

    at = list(_places(connection, dialect, target, content.table))
    reason = f"table '{target.table}' already holds the key ({', '.join(target.key)})"
    bad = bad_rows(content.table.take(pa.array(at, pa.int64())), target.columns, [reason] * len(at))
    kept = content.table.take(pa.array(sorted(set(range(content.table.num_rows)) - set(at)), pa.int64()))
    parts: list[StagedTable] = []
    for part in content.parts:
        found = list(_existing_in_part(connection, dialect, target, part))
        bad += [BadRow(reason, row.values) for row in found]
        if found:
            run(connection, f"DELETE FROM {dialect.part_source(part)} WHERE {_held(dialect, target, part)}")
        parts.append(StagedTable(part.name, part.rows - len(found)))
    return replace(content, table=kept, parts=tuple(parts)), iter(bad)


def _twice_in_table(target: WriteTarget, table: pa.Table) -> Iterator[BadRow]:
    ordered = table.sort_by([(name, "ascending") for name in target.key])
    doubled = ordered.filter(shared(ordered, target.key)).slice(0, 1)
    yield from bad_rows(doubled, target.columns, [""] * doubled.num_rows)


def _twice_in_parts(
    connection: Connection, dialect: Dialect, target: WriteTarget, content: Content
) -> Iterator[BadRow]:
    if not content.parts:
        return
    names = dialect.identifiers(target.key)
    union = " UNION ALL ".join(f"SELECT {names} FROM {dialect.part_source(part)}" for part in content.parts)
    shown = ", ".join(dialect.readable(column) for column in target.columns if column.name in target.key)
    statement = f"SELECT {shown} FROM ({union}) AS parts GROUP BY {names} HAVING COUNT(*) > 1 LIMIT 1"
    columns = [column.name for column in target.columns if column.name in target.key]
    for row in rows_of(connection, statement):
        yield BadRow("", dict(zip(columns, row, strict=True)))


def _existing(connection: Connection, dialect: Dialect, target: WriteTarget, content: Content) -> Iterator[BadRow]:
    for at in _places(connection, dialect, target, content.table):
        yield from bad_rows(content.table.slice(at, 1), target.columns, [""])
    for part in content.parts:
        yield from _existing_in_part(connection, dialect, target, part, "LIMIT 1")


def _existing_in_part(
    connection: Connection, dialect: Dialect, target: WriteTarget, part: StagedTable, limit: str = ""
) -> Iterator[BadRow]:
    shown = ", ".join(dialect.readable(column) for column in target.columns)
    statement = f"SELECT {shown} FROM {dialect.part_source(part)} WHERE {_held(dialect, target, part)} {limit}"
    for row in rows_of(connection, statement):
        yield BadRow("", dict(zip(target.names, row, strict=True)))


def _held(dialect: Dialect, target: WriteTarget, part: StagedTable) -> str:
    """The condition that the table holds the key of a row of a staging table."""
    source = dialect.part_source(part)
    same = " AND ".join(f"held.{dialect.quote(name)} = {source}.{dialect.quote(name)}" for name in target.key)
    return f"EXISTS (SELECT 1 FROM {dialect.quote(target.table)} AS held WHERE {same})"


def _places(connection: Connection, dialect: Dialect, target: WriteTarget, table: pa.Table) -> Iterator[int]:
    """Which rows of `table` have a key that the table holds."""
    key_columns = [column for column in target.columns if column.name in target.key]
    keys = rows(table.select([column.name for column in key_columns]), key_columns, dialect.forms)
    same = " AND ".join(f"{dialect.quote(column.name)} = {dialect.placeholder}" for column in key_columns)

    def held(some: Sequence[tuple[Any, ...]]) -> bool:
        condition = " OR ".join([f"({same})"] * len(some))
        statement = f"SELECT 1 FROM {dialect.quote(target.table)} WHERE {condition} LIMIT 1"
        return bool(list(rows_of(connection, statement, [value for key in some for value in key])))

    for first in range(0, len(keys), _KEYS_AT_ONCE):
        some = keys[first : first + _KEYS_AT_ONCE]
        if held(some):
            yield from (first + at for at, key in enumerate(some) if held([key]))
