"""The rows that each batch has replaced, kept in the batch's own transaction, so that the table can go back.

Each batch or correction is a step. A step keeps, for each key that it writes, the row with that key, or that there was
none. For a batch that replaces the whole table, it keeps the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.connectors.sql.result_table import ResultTable
from headrace.connectors.sql.staging import Content
from headrace.connectors.sql.system_tables import (
    BEFORE,
    MINE,
    OWN_PREFIX,
    QUARANTINE,
    OwnLines,
    exclusive,
    make_all,
    own_name,
)
from headrace.contract import SinkContext

if TYPE_CHECKING:
    import pyarrow as pa

Kind: TypeAlias = Literal["batch", "correction", "rewind", "repair"]
STEP, THERE = f"{OWN_PREFIX}step", f"{OWN_PREFIX}there"
_NUMBER = f"{OWN_PREFIX}number"
# Steps that are looked at after each batch, whether they are older than what is kept.
_PURGED_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True)
class TableWrite:
    """One write into the table. whole: it replaced all rows. void: the step of the rewind that took it off; 0: none."""

    step: int
    batch: int
    kind: Kind
    whole: bool
    void: int
    at: str


@dataclass(frozen=True)
class BeforeImages(OwnLines):
    """The steps of one life and its table.

    name: the table of the rows that were there before. seconds: how long they are kept.
    """

    result: ResultTable
    name: str
    seconds: float

    @classmethod
    def of(cls, lines: OwnLines, table: ResultTable, seconds: float = 0.0, *, name: str | None = None) -> BeforeImages:
        """Return the images of the life of `lines`; a rename leaves their table's first name."""
        own = OwnLines(lines.connection, lines.dialect, lines.context, table.name)
        if name is None:
            statement = f"SELECT images FROM {BEFORE} WHERE {MINE} ORDER BY step DESC LIMIT 1"
            names = own.select(statement, *own.mine) if own.has_table(BEFORE) else []
            name = str(names[0][0]) if names else before_table_name(own.context, table.name)
        return cls(own.connection, own.dialect, own.context, table.name, table, name, seconds)

    def make(self) -> None:
        """Make what is missing; of several drivers that start at once, one does."""
        make_all(self.connection, self.dialect, [BEFORE])
        if self.has_table(self.name) and not list(self._widen()):
            return
        with exclusive(self.connection, self.dialect):
            for statement in list(self._widen() if self.has_table(self.name) else self._create()):
                self.run(statement)

    # ------------------------------------------------------------------------------------------------ a step

    def begin(self, batch: int, kind: Kind, *, whole: bool = False) -> int:
        """Enter a step; returns its number."""
        [(newest,)] = self.select(f"SELECT COALESCE(MAX(step), 0) FROM {BEFORE} WHERE images = ?", self.name)
        step = int(newest) + 1
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self.enter(BEFORE, *self.life, self.table, self.name, step, batch, kind, int(whole), 0, at)
        return step

    def keep_batch(self, batch: int, content: Content) -> None:
        """Keep the rows that a batch is about to replace."""
        mode = self.context.mode
        step = self.begin(batch, "batch", whole=mode == "complete")
        if mode == "complete":
            self.keep_all(step)
            # Rows quarantined earlier are no part of the new result; a rewind restores them with its rows.
            self.run(f"UPDATE {QUARANTINE} SET table_name = ? WHERE {MINE}", self.name, *self.mine)
        else:
            self.keep_content(step, content, is_new=mode == "append")
        self.purge()

    def keep_content(self, step: int, content: Content, *, is_new: bool = False) -> None:
        """Keep the rows that have the keys of `content`. is_new: none has, or the table will refuse them."""
        self.keep_keys(step, content.table, is_new=is_new)
        if content.deleted is not None:
            self.keep_keys(step, content.deleted)
        for part in (*content.parts, *content.deleted_parts):
            self.keep_from(step, self.dialect.part_source(part), is_new=is_new)

    def keep_keys(self, step: int, rows: pa.Table, *, is_new: bool = False) -> None:
        """Keep the rows that have the keys of a few `rows`."""
        if not rows.num_rows:
            return
        held = self.dialect.hold_keys(self.connection, self.table, self.result.key_columns, rows)
        self.keep_from(step, held, is_new=is_new)

    def keep_from(self, step: int, source: str, *, is_new: bool = False) -> None:
        """Keep the rows that have the keys of `source`, a table."""
        key = [column.name for column in self.result.key_columns]
        given = ", ".join(f"given.{self.quote(name)}" for name in key)
        if is_new:
            columns = self.dialect.identifiers([STEP, THERE, *key])
            self.run(f"INSERT INTO {self._images} ({columns}) SELECT ?, 0, {given} FROM {source} AS given", step)
            return
        others = [name for name in self.result.names if name not in key]
        held = "".join(f", held.{self.quote(name)}" for name in others)
        columns = self.dialect.identifiers([STEP, THERE, *key, *others])
        self.run(
            f"INSERT INTO {self._images} ({columns}) "
            f"SELECT ?, CASE WHEN held.{self.quote(key[0])} IS NULL THEN 0 ELSE 1 END, {given}{held} "
            f"FROM {source} AS given LEFT JOIN {self.quote(self.table)} AS held "
            f"ON {self.same('held', 'given')}",
            step,
        )

    def keep_all(self, step: int) -> None:
        """Keep the whole table."""
        names = self.dialect.identifiers(self.result.names)
        self.run(
            f"INSERT INTO {self._images} ({self.dialect.identifiers([STEP, THERE])}, {names}) "
            f"SELECT ?, 1, {names} FROM {self.quote(self.table)}",
            step,
        )

    # ------------------------------------------------------------------------------------------------ all steps

    def steps(self) -> list[TableWrite]:
        """Return every step that is kept, oldest first."""
        if not self.has_table(BEFORE):
            return []
        statement = f"SELECT step, batch, kind, whole, void, at FROM {BEFORE} WHERE {MINE} ORDER BY step"
        return [
            TableWrite(step=int(step), batch=int(batch), kind=kind, whole=bool(whole), void=int(void), at=str(at))
            for step, batch, kind, whole, void, at in self.select(statement, *self.mine)
        ]

    def forget_repairs(self) -> None:
        """Delete the rows that a repair has replaced: its own rows are about to change."""
        self.forget_steps([step.step for step in self.steps() if step.kind == "repair"])

    def forget_steps(self, steps: Sequence[int]) -> None:
        """Delete steps with what they keep."""
        if steps:
            self.run(f"DELETE FROM {self._images} WHERE {between(self.quote(STEP), steps)}")
            self.run(f"DELETE FROM {BEFORE} WHERE {MINE} AND {between('step', steps)}", *self.mine)

    def void(self, steps: Sequence[int], by: int) -> None:
        """Mark `steps` as taken off by the rewind `by`; 0: they count again."""
        if steps:
            self.run(f"UPDATE {BEFORE} SET void = ? WHERE {MINE} AND {between('step', steps)}", by, *self.mine)

    def purge(self) -> None:
        """Delete the oldest steps past the time to keep; at most as many as a few batches add."""
        limit = (datetime.now(timezone.utc) - timedelta(seconds=self.seconds)).isoformat(timespec="milliseconds")
        statement = f"SELECT step, batch, at FROM {BEFORE} WHERE {MINE} ORDER BY step LIMIT {_PURGED_AT_ONCE}"
        old = [row for row in self.select(statement, *self.mine) if str(row[2]) < limit]
        if not old:
            return
        step, batch, _ = old[-1]
        self.run(f"DELETE FROM {self._images} WHERE {self.quote(STEP)} <= ?", step)
        self.run(f"DELETE FROM {BEFORE} WHERE {MINE} AND step <= ?", *self.mine, step)
        if self.context.mode == "complete":
            self.run(f"DELETE FROM {QUARANTINE} WHERE {MINE} AND batch < ?", *self.mine[:3], self.name, batch)

    # -------------------------------------------------------------------------------------------- SQL

    def same(self, one: str, other: str) -> str:
        """Return the condition that two rows have one key."""
        names = [self.quote(column.name) for column in self.result.key_columns]
        return " AND ".join(f"{one}.{name} = {other}.{name}" for name in names)

    @property
    def _images(self) -> str:
        return self.quote(self.name)

    def _create(self) -> Iterator[str]:
        """Its columns have the very types of the table's; by way of the join, each of them takes NULL."""
        there = self.describe_table(self.table)
        present = set() if there is None else {column.name.lower() for column in there.columns}
        names = [name for name in self.result.names if name.lower() in present]
        held = "".join(f", held.{self.quote(name)}" for name in names)
        yield from self.dialect.create_as(
            self.name,
            _NUMBER,
            f"SELECT steps.step AS {self.quote(STEP)}, steps.whole AS {self.quote(THERE)}{held} FROM {BEFORE} AS steps "
            f"LEFT JOIN {self.quote(self.table)} AS held ON 1 = 0 WHERE 1 = 0",
        )
        index = self.quote(f"{self.name}_steps")
        yield f"CREATE INDEX {index} ON {self._images} ({self.quote(STEP)})"
        yield from self._add_columns({name.lower() for name in names})

    def _widen(self) -> Iterator[str]:
        there = self.describe_table(self.name)
        if there is not None:
            present = {column.name.lower() for column in there.columns}
            yield from self._add_columns(present)

    def _add_columns(self, present: set[str]) -> Iterator[str]:
        for column in self.result.columns:
            if column.name.lower() not in present:
                declared = self.dialect.declare(column, self.result.key_columns)
                yield f"ALTER TABLE {self._images} ADD COLUMN {self.quote(column.name)} {declared}"


def between(column: str, steps: Sequence[int]) -> str:
    """Return the condition that a column holds one of `steps`, most of which follow each other."""
    ranges: list[tuple[int, int]] = []
    for step in sorted(steps):
        if ranges and ranges[-1][1] == step - 1:
            ranges[-1] = (ranges[-1][0], step)
        else:
            ranges.append((step, step))
    return f"({' OR '.join(f'{column} BETWEEN {first} AND {last}' for first, last in ranges)})"


def before_table_name(context: SinkContext, table: str) -> str:
    """Return the name of the table of replaced rows."""
    return own_name("before", context, table)
