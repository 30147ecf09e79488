"""What is remembered of changes next to a result: deletes and truncates, and with intervals every change.

A line belongs to its batch. A rewind turns the numbers of the batches that it takes back below zero, by which their
lines count no more, and its undo turns them back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.connectors.exactly_once.changes import lost_deletes
from headrace.connectors.sql.change_rows import OLDER, OPERATION, ORDER, SEQUENCE, ChangeForm
from headrace.connectors.sql.dialect import WriteTarget
from headrace.connectors.sql.result_table import ResultTable
from headrace.connectors.sql.system_tables import (
    CHANGES,
    EPOCHS,
    MINE,
    OWN_PREFIX,
    OwnLines,
    exclusive,
    make_all,
    own_name,
)
from headrace.connectors.sql.types import ResultColumn
from headrace.contract import ChangeCounts

if TYPE_CHECKING:
    import pyarrow as pa

BATCH, AT = f"{OWN_PREFIX}batch", f"{OWN_PREFIX}at"
_NUMBER = f"{OWN_PREFIX}number"
# Counts of older batches are forgotten, as their lines in the ledger are.
_KEPT_BATCHES, _PRUNE_EVERY = 10_000, 100
# In the place of the time of a truncate, which is never forgotten.
_TRUNCATE = -1


@dataclass(frozen=True)
class ChangeMemory(OwnLines):
    """The lines of one life and its table. name: the table that they lie in. has_gaps: as of the newest batch."""

    name: str
    has_gaps: bool = False

    @classmethod
    def of(cls, lines: OwnLines) -> ChangeMemory:
        """Return the memory of the life of `lines`; a rename leaves its table's first name."""
        statement = f"SELECT aside, has_gaps FROM {CHANGES} WHERE {MINE} ORDER BY batch DESC LIMIT 1"
        newest = lines.select(statement, *lines.mine) if lines.has_table(CHANGES) else []
        name, has_gaps = newest[0] if newest else (own_name("deletes", lines.context, lines.table), 0)
        return cls(lines.connection, lines.dialect, lines.context, lines.table, str(name), bool(has_gaps))

    @property
    def quoted(self) -> str:
        """The table's name in SQL."""
        return self.quote(self.name)

    def make(self, table: ResultTable, form: ChangeForm) -> None:
        """Make what is missing; of several drivers that start at once, one does.

        Raises:
            CheckpointError: The table is gone though batches of the query are in.
        """
        make_all(self.connection, self.dialect, [CHANGES])
        kept = form.values if form.has_intervals else tuple(c for c in form.values if c.name in form.key)
        there = self.describe_table(self.name)
        present = set() if there is None else {column.name.lower() for column in there.columns}
        if there is not None and all(column.name.lower() in present for column in kept):
            return
        if there is None and self.select(f"SELECT 1 FROM {CHANGES} WHERE {MINE} LIMIT 1", *self.mine):
            raise lost_deletes(f"table '{self.name}'", self.context)
        with exclusive(self.connection, self.dialect):
            for statement in self._additions(kept, present) if there is not None else self._create(table, form, kept):
                self.run(statement)

    def _create(self, table: ResultTable, form: ChangeForm, kept: Sequence[ResultColumn]) -> list[str]:
        """Its columns have the very types of the result's, and each of them takes NULL."""
        there = self.describe_table(table.name)
        present = set() if there is None else {column.name.lower() for column in there.columns}
        names = [column.name for column in kept if column.name.lower() in present]
        pairs = [(name, self.quote(name)) for name in names]
        if form.has_intervals:
            pairs.append((form.options.start_column, SEQUENCE))
        held = [f"{self.dialect.nullable(f'held.{self.quote(name)}')} AS {alias}" for name, alias in pairs]
        source = f"SELECT {', '.join(held)} FROM {EPOCHS} AS epochs "
        source += f"LEFT JOIN {self.quote(table.name)} AS held ON 1 = 0 WHERE 1 = 0"
        text, long_text = self.dialect.key_text, self.dialect.long_text
        keys = self.dialect.identifiers(form.key)
        # Of changes that intervals are made of there are many; such a line has no time, and is never looked for by it.
        timed = f" WHERE {AT} IS NOT NULL" if self.dialect.has_partial_indexes else ""
        return [
            *self.dialect.create_as(self.name, _NUMBER, source),
            f"ALTER TABLE {self.quoted} ADD COLUMN {OPERATION} {text}",
            f"ALTER TABLE {self.quoted} ADD COLUMN {ORDER} {long_text}",
            f"ALTER TABLE {self.quoted} ADD COLUMN {OLDER} {long_text}",
            f"ALTER TABLE {self.quoted} ADD COLUMN {BATCH} BIGINT",
            f"ALTER TABLE {self.quoted} ADD COLUMN {AT} BIGINT",
            *self._additions(kept, {name.lower() for name in names}),
            f"CREATE INDEX {self.quote(f'{self.name}_keys')} ON {self.quoted} ({keys})",
            f"CREATE INDEX {self.quote(f'{self.name}_at')} ON {self.quoted} ({AT}){timed}",
        ]

    def _additions(self, kept: Sequence[ResultColumn], present: set[str]) -> list[str]:
        return [
            f"ALTER TABLE {self.quoted} ADD COLUMN {self.quote(column.name)} {self.dialect.declare(column, ())}"
            for column in kept
            if column.name.lower() not in present
        ]

    # ----------------------------------------------------------------------------------------------- a batch

    def add_truncates(self, batch: int, truncates: Sequence[tuple[str, Any]], form: ChangeForm) -> None:
        """Remember truncates, each by its order and its sequence."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        if not truncates:
            return
        own = [column for column in form.own if column.name in (OPERATION, ORDER, SEQUENCE)]
        values: dict[str, pa.Array] = {
            OPERATION: pa.array(["truncate"] * len(truncates), pa.string()),
            ORDER: pa.array([order for order, _ in truncates], pa.string()),
            SEQUENCE: pa.array([sequence for _, sequence in truncates], to_arrow_type(form.sequence.type)),
        }
        target = WriteTarget(table=self.name, columns=tuple(own), key=(), replaces=False)
        self.dialect.write(self.connection, target, pa.table({column.name: values[column.name] for column in own}))
        self.run(f"UPDATE {self.quoted} SET {BATCH} = ?, {AT} = ? WHERE {BATCH} IS NULL", batch, _TRUNCATE)

    def newest_truncate(self) -> str:
        """Return the order of the newest truncate; empty: there was none."""
        order = self.dialect.bytewise(ORDER)
        statement = f"SELECT {ORDER} FROM {self.quoted} WHERE {self.truncates} ORDER BY {order} DESC LIMIT 1"
        return "".join(str(row[0]) for row in self.select(statement))

    @property
    def truncates(self) -> str:
        """The condition that a line is a truncate that counts."""
        return f"{AT} = {_TRUNCATE} AND {BATCH} >= 0"

    def purge(self, seconds: float) -> None:
        """Forget the deletes that are older than so many seconds."""
        self.run(f"DELETE FROM {self.quoted} WHERE {AT} >= 0 AND {AT} < ?", int(time.time() - seconds))

    def enter_batch(self, batch: int, counts: ChangeCounts, *, has_gaps: bool) -> None:
        """Enter what a batch did."""
        numbers = (counts.inserts, counts.updates, counts.deletes, counts.ignored, counts.truncates)
        self.enter(CHANGES, *self.life, self.table, self.name, batch, int(has_gaps), *numbers)
        if batch % _PRUNE_EVERY == 0:
            self.run(f"DELETE FROM {CHANGES} WHERE {MINE} AND batch <= ?", *self.mine, batch - _KEPT_BATCHES)

    # -------------------------------------------------------------------------------------------- rewinding

    def hide_after(self, batch: int) -> None:
        """Let the lines of later batches count no more."""
        self._turn(f"{BATCH} > ?", batch)

    def show_hidden(self) -> None:
        """Let hidden lines count again."""
        self._turn(f"{BATCH} < ?", 0)

    def forget_hidden(self) -> None:
        """Delete hidden lines."""
        self.run(f"DELETE FROM {self.quoted} WHERE {BATCH} < 0")

    def _turn(self, condition: str, *values: object) -> None:
        self.run(f"UPDATE {self.quoted} SET {BATCH} = -1 - {BATCH} WHERE {condition}", *values)


def memory_of(lines: OwnLines) -> ChangeMemory | None:
    """Return the memory of a table's life; None: its rows are not written by changes."""
    if not lines.has_table(CHANGES):
        return None
    memory = ChangeMemory.of(lines)
    return memory if lines.has_table(memory.name) else None
