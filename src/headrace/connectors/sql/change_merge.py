"""The changes of a batch merged into a table, in the batch's own transaction and in SQL alone."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from headrace.connectors.sql.before_images import BeforeImages
from headrace.connectors.sql.change_memory import AT, BATCH, ChangeMemory
from headrace.connectors.sql.change_rows import LACKING, OLDER, OPERATION, ORDER, ChangeForm
from headrace.connectors.sql.dialect import Dialect, WriteTarget
from headrace.connectors.sql.limits import BadRow
from headrace.connectors.sql.result_table import ResultTable
from headrace.connectors.sql.row_writer import RowWriter, StatementWriter
from headrace.connectors.sql.staging import Content
from headrace.connectors.sql.system_tables import OWN_PREFIX
from headrace.connectors.sql.types import ResultColumn
from headrace.contract import ChangeCounts
from headrace.contract.change_data import column_mark

_GIVEN, _MERGED, _LACKS = (f"{OWN_PREFIX}{name}" for name in ("given", "merged", "lacks"))
ACTION = f"{OWN_PREFIX}action"
_Writer = TypeVar("_Writer", bound=RowWriter)
_LACKING_REASON = "a value that its change leaves out is not in the table"
# What is done with a row of the result, and with a change that is neither older nor the same as one before.
INSERT, UPDATE, DELETE, CHANGE = range(4)


class LackingValueError(Exception):
    """A change leaves a column out of which no earlier change has a value; the text names the key."""


@dataclass(frozen=True, kw_only=True)
class ChangeMerge(ABC):
    """The changes of one batch on their way into a table.

    images: keeps the rows that are replaced, as the step `step`; None: nothing does. on_bad: called with the rows that
    the table does not take, returns how many there are; None: the first one ends the batch. by_rows: the database has
    refused a row, so that each is tried. awaits: as `RowWriter.awaits`.
    """

    table: ResultTable
    form: ChangeForm
    memory: ChangeMemory
    batch: int
    content: Content
    images: BeforeImages | None = None
    step: int = 0
    on_bad: Callable[[Iterable[BadRow]], int] | None = None
    by_rows: bool = False
    awaits: bool = False

    @abstractmethod
    def write(self, sources: Sequence[str]) -> Counter[int]:
        """Write the changes of `sources`, tables; returns how often each was done. Of one key all are in one table."""

    def merge(self) -> ChangeCounts:
        """Write the batch; returns what it did."""
        truncates = self.content.changes.truncates
        self.memory.add_truncates(self.batch, truncates, self.form)
        done = self.write(list(self._sources()))
        bad = len(self.content.bad) + sum(part.rows for part in self.content.bad_parts)
        counts = ChangeCounts(
            inserts=done[INSERT],
            updates=done[UPDATE],
            deletes=done[DELETE],
            ignored=self.content.changes.given - len(truncates) - bad - done[CHANGE],
            truncates=len(truncates),
        )
        self.memory.enter_batch(self.batch, counts, has_gaps=self.has_gaps)
        return counts

    @property
    def dialect(self) -> Dialect:
        return self.memory.dialect

    @property
    def has_gaps(self) -> bool:
        """Whether a change, or a row of the table, may have values that are older than it."""
        return self.memory.has_gaps or self.content.changes.has_gaps

    @property
    def result(self) -> str:
        """The result's table in SQL."""
        return self.dialect.quote(self.table.name)

    def _sources(self) -> Iterator[str]:
        dialect = self.dialect
        if self.content.table.num_rows:
            target = WriteTarget(table=_GIVEN, columns=self.form.columns, key=(), replaces=False)
            quoted = [dialect.quote(column.name) for column in self.form.values]
            values = [f"{dialect.nullable(f'held.{name}')} AS {name}" for name in quoted]
            own = [f"own.{column.name}" for column in self.form.own]
            self.make_temporary(
                _GIVEN,
                f"SELECT {', '.join([*values, *own])} FROM {self.memory.quoted} AS own "
                f"LEFT JOIN {self.result} AS held ON 1 = 0 WHERE 1 = 0",
            )
            if self.by_rows and self.on_bad is not None:
                self.on_bad(self._row_writer(RowWriter, target).write(Content(table=self.content.table)))
            else:
                dialect.write(self.memory.connection, target, self.content.table)
            yield _GIVEN
        for part in self.content.parts:
            dialect.require_whole(self.memory.connection, part)
            yield dialect.part_source(part)

    def apply(self, columns: Sequence[ResultColumn], source: str, statement: Callable[[str], str]) -> int:
        """Apply a statement, made of a SELECT of `columns` of `source`; returns how many rows are refused."""
        if not self.by_rows or self.on_bad is None:
            names = self.dialect.identifiers([column.name for column in columns])
            self.memory.run(statement(f"SELECT {names} FROM {source}"))
            return 0
        target = replace(self.table.target(replaces=True), columns=tuple(columns))
        return self.on_bad(self._row_writer(StatementWriter, target, statement=statement).apply(source))

    def _row_writer(self, kind: type[_Writer], target: WriteTarget, **more: Any) -> _Writer:
        return kind(connection=self.memory.connection, dialect=self.dialect, target=target, awaits=self.awaits, **more)

    def delete(self, source: str) -> int:
        """Delete the rows with the keys of `source`; returns how many are refused."""
        table = self.table
        return self.apply(table.key_columns, source, lambda keys: self.dialect.delete_from(table.name, table.key, keys))

    def write_actions(self, source: str) -> Counter[int]:
        """Insert and update by the rows of a table; returns how often each is done with a row."""
        counted = self.count_actions(source)
        for action, replaces in ((INSERT, False), (UPDATE, True)):
            if counted[action]:
                upsert = partial(self.dialect.upsert_from, self.memory.connection, self.table.target(replaces=replaces))
                counted[action] -= self.apply(self.table.columns, f"{source} WHERE {ACTION} = {action}", upsert)
        return counted

    def require_values(self, lacking: str) -> None:
        """Refuse rows that lack a value, given as what follows FROM, where the source sends changes in their order.

        Raises:
            LackingValueError: There is such a row.
        """
        if not self.form.options.refuses_gaps:
            return
        for row in self.memory.select(f"SELECT {self.dialect.identifiers(self.form.key)} FROM {lacking} LIMIT 1"):
            raise LackingValueError(
                ", ".join(f"{name}={value}" for name, value in zip(self.form.key, row, strict=True))
            )

    def make_temporary(self, name: str, source: str) -> None:
        """Make a temporary table, in the place of an earlier one."""
        self.memory.run(self.dialect.drop_temporary(name))
        self.memory.run(self.dialect.create_temporary(name, source))

    def count_actions(self, table: str) -> Counter[int]:
        """Count the rows of a table by what is done with them."""
        counted = self.memory.select(f"SELECT {ACTION}, COUNT(*) FROM {table} GROUP BY {ACTION}")
        return Counter({int(action): int(count) for action, count in counted})

    def keep(self, source: str) -> None:
        """Keep the rows that have the keys of `source`, for a rewind."""
        if self.images is not None:
            self.images.keep_from(self.step, source)

    def names(self, columns: Sequence[str], alias: str = "") -> str:
        """Return columns in SQL, of the table with an alias."""
        prefix = f"{alias}." if alias else ""
        return ", ".join(f"{prefix}{self.dialect.quote(name)}" for name in columns)

    def same(self, one: str, other: str, columns: Sequence[str] = ()) -> str:
        """Return the condition that rows of two aliases have one key."""
        pairs = (self.dialect.quote(name) for name in columns or self.form.key)
        return " AND ".join(f"{one}.{name} = {other}.{name}" for name in pairs)

    def is_newer(self, one: str, other: str) -> str:
        """Return the condition that one order is newer than another."""
        return f"{self.dialect.bytewise(one)} > {self.dialect.bytewise(other)}"

    def older_order(self, older: str, column: ResultColumn) -> str:
        """Return the order of a column's value, where it is older than its row."""
        return self.dialect.json_text(older, column_mark(column.name))


@dataclass(frozen=True, kw_only=True)
class RowMerge(ChangeMerge):
    """Keeps the newest row of each key; deletes are remembered for `seconds`."""

    seconds: float

    def write(self, sources: Sequence[str]) -> Counter[int]:
        memory, options = self.memory, self.form.options
        # The text of an order has letters and digits alone.
        truncate, done = f"'{memory.newest_truncate()}'", Counter[int]()
        for source in sources:
            merged = self._select_with_gaps if self.has_gaps else self._select_merged
            self.make_temporary(_MERGED, merged(source, truncate))
            if self.has_gaps:
                self._refuse_lacking()
            done += self._write_merged()
        if self.content.changes.truncates:
            order = self.dialect.quote(options.order_column)
            done += self._truncate(self.is_newer(truncate, order), truncate)
        memory.purge(self.seconds)
        return done

    @property
    def _order(self) -> str:
        return f"t.{self.dialect.quote(self.form.options.order_column)}"

    @property
    def _older(self) -> str:
        return f"t.{self.dialect.quote(self.form.options.older_column)}"

    def _refuse_lacking(self) -> None:
        """Let rows that lack a value be deletes, or end the batch."""
        lacking = f"{_MERGED} WHERE {_LACKS} = 1"
        if self.on_bad is None or not self.form.options.refuses_gaps:
            self.require_values(lacking)
            return
        shown = ", ".join(map(self.dialect.select_expression, self.table.columns))
        rows = self.memory.select(f"SELECT {shown} FROM {lacking}")
        self.on_bad(BadRow(_LACKING_REASON, dict(zip(self.table.names, row, strict=True))) for row in rows)
        # The row before was deleted, perhaps by a change that is folded into this one.
        self.memory.run(f"UPDATE {_MERGED} SET {ACTION} = {DELETE} WHERE {_LACKS} = 1")

    def _write_merged(self) -> Counter[int]:
        memory, dialect = self.memory, self.dialect
        changes = self.count_actions(_MERGED).total()
        self.keep(_MERGED)
        done = self.write_actions(_MERGED)
        if done[DELETE]:
            key = dialect.identifiers(self.form.key)
            gone = f"{_MERGED} WHERE {ACTION} = {DELETE}"
            done[DELETE] -= self.delete(gone)
            order = dialect.quote(self.form.options.order_column)
            if self.by_rows:
                # A delete that is refused is not remembered.
                gone += f" AND NOT EXISTS (SELECT 1 FROM {self.result} AS r WHERE {self.same('r', _MERGED)})"
            memory.run(
                f"INSERT INTO {memory.quoted} ({key}, {OPERATION}, {ORDER}, {BATCH}, {AT}) "
                f"SELECT {key}, 'delete', {order}, ?, ? FROM {gone}",
                self.batch,
                int(time.time()),
            )
        return done + Counter({CHANGE: changes})

    def _select_merged(self, source: str, truncate: str) -> str:
        """Return a SELECT of the rows after the changes of `source`, of which each has all values."""
        remembered = f"EXISTS (SELECT 1 FROM {self.memory.quoted} AS d WHERE {self.same('d', 'g')} "
        remembered += f"AND d.{AT} >= 0 AND d.{BATCH} >= 0 AND NOT {self.is_newer(f'g.{ORDER}', f'd.{ORDER}')})"
        key = f"t.{self.dialect.quote(self.form.key[0])}"
        order, older = map(self.dialect.quote, (self.form.options.order_column, self.form.options.older_column))
        return (
            f"SELECT {self.names([column.name for column in self.form.values], 'g')}, "
            f"g.{ORDER} AS {order}, g.{OLDER} AS {older}, CASE WHEN g.{OPERATION} = 'delete' THEN {DELETE} "
            f"WHEN {key} IS NULL THEN {INSERT} ELSE {UPDATE} END AS {ACTION} "
            f"FROM {source} AS g LEFT JOIN {self.result} AS t ON {self.same('t', 'g')} "
            f"WHERE ({self._order} IS NULL OR {self.is_newer(f'g.{ORDER}', self._order)}) "
            f"AND {self.is_newer(f'g.{ORDER}', truncate)} AND NOT {remembered}"
        )

    def _select_with_gaps(self, source: str, truncate: str) -> str:
        """Return the same where a column may be older than its row; the newest value of each column is taken.

        The newest delete or truncate before a row, its floor, is a NULL of that order in every column.
        """
        dialect, is_newer, bytewise = self.dialect, self.is_newer, self.dialect.bytewise
        others, key = self.form.others, self.form.key
        floor = f"(SELECT MAX({bytewise(f'd.{ORDER}')}) FROM {self.memory.quoted} AS d "
        floor += f"WHERE {self.same('d', 'g')} AND d.{AT} >= 0 AND d.{BATCH} >= 0)"
        values = "".join(
            f", g.{dialect.quote(column.name)} AS g{at}, t.{dialect.quote(column.name)} AS t{at}"
            for at, column in enumerate(others)
        )
        joined = (
            f"SELECT {self.names(key, 'g')}{values}, g.{OPERATION} AS op, g.{ORDER} AS ord, g.{OLDER} AS older, "
            f"{self._order} AS held_ord, {self._older} AS held_older, "
            f"CASE WHEN t.{dialect.quote(key[0])} IS NULL THEN {INSERT} ELSE {UPDATE} END AS act, "
            f"COALESCE({floor}, '') AS deleted FROM {source} AS g LEFT JOIN {self.result} AS t "
            f"ON {self.same('t', 'g')} WHERE {self._order} IS NULL OR {is_newer(f'g.{ORDER}', self._order)} "
            f"OR {self._older} IS NOT NULL{dialect.barrier}"
        )
        orders = "".join(
            f", COALESCE({self.older_order('older', column)}, ord) AS go{at}"
            f", COALESCE({self.older_order('held_older', column)}, held_ord, '') AS ho{at}"
            for at, column in enumerate(others)
        )
        carried = "".join(f", g{at}, t{at}" for at in range(len(others)))
        floored = (
            f"SELECT {self.names(key)}{carried}{orders}, op, ord, older, act, held_ord, CASE WHEN held_ord IS NULL OR "
            f"{is_newer('ord', 'held_ord')} THEN 1 ELSE 0 END AS is_newest, "
            f"CASE WHEN {is_newer(truncate, 'deleted')} THEN {truncate} ELSE deleted END AS floor "
            f"FROM ({joined}) AS joined{dialect.barrier}"
        )
        newest = f"CASE WHEN is_newest = 1 THEN {bytewise('ord')} ELSE {bytewise('held_ord')} END"
        chosen, ages, lacks = "", [], [f"{dialect.json_text('older', LACKING)} IS NOT NULL"]
        for at, column in enumerate(others):
            given = f"NOT {is_newer(f'ho{at}', f'go{at}')} AND NOT {is_newer('floor', f'go{at}')}"
            held = f"NOT {is_newer('floor', f'ho{at}')}"
            value = f"CASE WHEN {given} THEN g{at} WHEN {held} THEN t{at} END"
            value = bytewise(value) if column.kind == "text" else value
            chosen += f", {value} AS {dialect.quote(column.name)}"
            age = f"CASE WHEN {given} THEN {bytewise(f'go{at}')} WHEN {held} THEN {bytewise(f'ho{at}')} "
            age += f"ELSE {bytewise('floor')} END"
            # Every value is newer than the floor.
            lacks.append(f"NOT {is_newer(age, 'floor')}")
            ages.append((column_mark(column.name), f"CASE WHEN {is_newer(newest, age)} THEN {age} END"))
        order, older = map(dialect.quote, (self.form.options.order_column, self.form.options.older_column))
        gaps = dialect.json_object(ages) if ages else "NULL"
        return (
            f"SELECT {self.names(key)}{chosen}, {bytewise(newest)} AS {order}, {gaps} AS {older}, "
            f"CASE WHEN op = 'delete' AND is_newest = 1 THEN {DELETE} ELSE act END AS {ACTION}, "
            f"CASE WHEN op <> 'delete' AND ({' OR '.join(lacks)}) THEN 1 ELSE 0 END AS {_LACKS} "
            f"FROM ({floored}) AS floored WHERE {is_newer('ord', 'floor')}"
        )

    def _truncate(self, is_older: str, truncate: str) -> Counter[int]:
        """Delete the rows that are older than a truncate, and of newer ones the values that are."""
        memory, dialect = self.memory, self.dialect
        key, older = dialect.identifiers(self.form.key), dialect.quote(self.form.options.older_column)
        if self.has_gaps and self.form.others:
            ages = {column: self.older_order(older, column) for column in self.form.others}
            stale = {column: self.is_newer(truncate, age) for column, age in ages.items()}
            has_stale = f"{older} IS NOT NULL AND NOT {is_older} AND ({' OR '.join(stale.values())})"
            order = dialect.quote(self.form.options.order_column)
            values = [
                f"CASE WHEN {stale[column]} THEN NULL ELSE {dialect.quote(column.name)} END "
                f"AS {dialect.quote(column.name)}"
                for column in self.form.others
            ]
            marks = [
                (column_mark(column.name), f"CASE WHEN {stale[column]} THEN {truncate} ELSE {age} END")
                for column, age in ages.items()
            ]
            self.make_temporary(
                _MERGED,
                f"SELECT {key}, {', '.join(values)}, {order}, {dialect.json_object(marks)} AS {older} "
                f"FROM {self.result} WHERE {has_stale}",
            )
            self.keep(_MERGED)
            target = self.table.target(replaces=True)
            self.apply(self.table.columns, _MERGED, partial(dialect.upsert_from, memory.connection, target))
        self.make_temporary(_MERGED, f"SELECT {key} FROM {self.result} WHERE {is_older}")
        self.keep(_MERGED)
        [(count,)] = memory.select(f"SELECT COUNT(*) FROM {_MERGED}")
        if not self.by_rows:
            memory.run(f"DELETE FROM {self.result} WHERE {is_older}")
            return Counter({DELETE: int(count)})
        return Counter({DELETE: int(count) - self.delete(_MERGED)})
