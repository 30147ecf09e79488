"""Rows that the database itself refuses: a batch is written in blocks, and a block that is refused in its halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.connectors.sql.dialect import ROW_NUMBER, Connection, Dialect, WriteTarget, rows_of, run
from headrace.connectors.sql.limits import BadRow
from headrace.connectors.sql.staging import Content
from headrace.connectors.sql.system_tables import OWN_PREFIX
from headrace.connectors.sql.types import rows

_SAVEPOINT = "headrace_rows"
_NUMBERED = f"{OWN_PREFIX}numbered"
# A row, as it was given, with why it was refused.
_Refused = tuple[Any, Exception]


@dataclass(frozen=True, kw_only=True)
class RowWriter:
    """Writes the rows of a batch that the database takes, in a transaction that has begun.

    awaits: a row whose parent is missing raises the database's error, so that the whole batch is tried again later.
    """

    connection: Connection
    dialect: Dialect
    target: WriteTarget
    awaits: bool

    def write(self, content: Content) -> Iterator[BadRow]:
        """Write all rows that the database takes, and yield each other one with the reason in the server's words."""
        yield from self._judge(self._refused_rows(content))

    def _judge(self, refused: Iterator[_Refused]) -> Iterator[BadRow]:
        """Yield the refused rows; one that refers to another row of the batch is tried again when that one is in."""
        if self.dialect.check_now:
            run(self.connection, self.dialect.check_now)
        orphans: list[_Refused] = []
        for values, error in refused:
            if self.dialect.lacks_parent(error):
                orphans.append((values, error))
            else:
                yield self._bad_row(values, error)
        before = len(orphans) + 1
        while len(orphans) < before:
            before = len(orphans)
            orphans = [refused for values, _ in orphans for refused in self._write_blocks([values])]
        for values, error in orphans:
            if self.awaits:
                raise error
            yield self._bad_row(values, error)

    def _refused_rows(self, content: Content) -> Iterator[_Refused]:
        yield from self._write_blocks(rows(content.table, self.target.columns, self.dialect.forms))
        shown = ", ".join(self.dialect.select_expression(column) for column in self.target.columns)
        for part in content.parts:
            if self._try(partial(self.dialect.merge, self.connection, self.target, [part])) is None:
                continue
            # Read on a connection of its own: not every client reads and writes on one at once.
            with closing(self.dialect.connect_to_read()) as reader:
                self.dialect.attach(reader, [part])
                run(reader, self.dialect.begin_read)
                statement = f"SELECT {shown} FROM {self.dialect.part_source(part)}"
                for block in self.dialect.stream(reader, statement):
                    yield from self._write_blocks(block)

    def _write_blocks(self, given: Sequence[Any]) -> Iterator[_Refused]:
        error = self._try(partial(self._write_block, given)) if given else None
        if error is None:
            return
        if len(given) == 1:
            yield given[0], error
            return
        half = len(given) // 2
        yield from self._write_blocks(given[:half])
        yield from self._write_blocks(given[half:])

    def _write_block(self, given: Sequence[Any]) -> None:
        self.dialect.write_rows(self.connection, self.target, given)

    def _try(self, write: Callable[[], None]) -> Exception | None:
        """Write under a savepoint; returns the error of a row that was refused, and then nothing is written."""
        run(self.connection, f"SAVEPOINT {_SAVEPOINT}")
        refused = None
        try:
            write()
        except self.dialect.errors as error:
            if not self.dialect.refusal(error):
                raise
            refused = error
            run(self.connection, f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        run(self.connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
        return refused

    def _bad_row(self, given: Any, error: Exception) -> BadRow:
        reason = self.dialect.refusal(error)
        return BadRow(reason, dict(zip(self.target.names, self._values(given), strict=True)))

    def _values(self, given: Any) -> tuple[Any, ...]:
        return tuple(given)


@dataclass(frozen=True, kw_only=True)
class StatementWriter(RowWriter):
    """Applies a statement to the rows of a table of the transaction's own, which it numbers.

    target: the columns that the statement reads. statement: makes it of a SELECT of these columns.
    """

    statement: Callable[[str], str]

    def apply(self, source: str) -> Iterator[BadRow]:
        """Apply it to all rows of `source`, as what follows FROM, that the database takes, and yield the others."""
        names = self.dialect.identifiers(self.target.names)
        run(self.connection, self.dialect.drop_temporary(_NUMBERED))
        for statement in self.dialect.create_numbered(_NUMBERED, f"SELECT {names} FROM {source}"):
            run(self.connection, statement)
        [(first, last)] = rows_of(self.connection, f"SELECT MIN({ROW_NUMBER}), MAX({ROW_NUMBER}) FROM {_NUMBERED}")
        yield from self._judge(self._write_blocks(range(first, last + 1) if first is not None else ()))

    def _write_block(self, given: Sequence[int]) -> None:
        rows = f"{_NUMBERED} WHERE {ROW_NUMBER} BETWEEN {given[0]} AND {given[-1]}"
        run(self.connection, self.statement(f"SELECT {self.dialect.identifiers(self.target.names)} FROM {rows}"))

    def _values(self, given: int) -> tuple[Any, ...]:
        shown = ", ".join(map(self.dialect.select_expression, self.target.columns))
        [values] = rows_of(self.connection, f"SELECT {shown} FROM {_NUMBERED} WHERE {ROW_NUMBER} = {given}")
        return values
