"""A result table as it was at the end of an earlier batch, with its ledger; one transaction, which can be undone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.connectors.sql.before_images import STEP, THERE, BeforeImages, TableWrite, between
from headrace.connectors.sql.dialect import identifiers, rows_of, run
from headrace.connectors.sql.generations import locked, looking, owner_of
from headrace.connectors.sql.ledger import Ledger, aside_names
from headrace.connectors.sql.result_table import ResultTable
from headrace.connectors.sql.system_tables import LEDGER, OWN_PREFIX, QUARANTINE
from headrace.connectors.sql.transactions import OfTable
from headrace.connectors.sql.types import columns
from headrace.contract import Held, OutputMode, Session, SinkContext, SinkRewind
from headrace.errors import NothingChanged

_BACK = f"{OWN_PREFIX}back"


@dataclass(frozen=True)
class Rewinding:
    """The table of a life, on the ledger's connection: what it keeps of earlier batches."""

    ledger: Ledger
    table: ResultTable
    images: BeforeImages

    @classmethod
    def of(cls, ledger: Ledger, key: Sequence[str], name: str) -> Rewinding | None:
        """None where the table holds nothing of the generation."""
        from pyspark.sql.types import StructType

        connection, dialect, context = ledger.connection, ledger.dialect, ledger.context
        if dialect.existing(connection, LEDGER) is None:
            return None
        owner = owner_of(ledger, name)
        if owner is None or not owner.is_of(context) or dialect.existing(connection, ledger.table) is None:
            return None
        known, _ = columns(StructType.fromJson(json.loads(owner.schema)))
        table = ResultTable(name=ledger.table, key=tuple(key), columns=known)
        return cls(ledger, table, BeforeImages.of(connection, dialect, context, table))

    @property
    def earliest(self) -> int | None:
        """The first batch that can be gone back to: all that were written after it have kept what was there before."""
        lines = self.ledger.batches_after(-1)
        if not lines:
            return None
        steps = [step for step in self.images.steps() if not step.void]
        kept = {step.batch for step in steps if step.kind == "batch"}
        corrected = [step.batch for step in steps if step.kind == "correction"]
        replays = self.ledger.replays_after(-1)
        lacking = [batch for batch in replays if replays.count(batch) > corrected.count(batch)]
        # The line of the batch itself must stay, as the next one is chained to it.
        return max([*(lines - kept), *lacking, min(lines)])

    def taken(self, batch: int) -> list[TableWrite]:
        """The steps after `batch`, oldest first; what a repair has put right stays so."""
        taken = [step for step in self.images.steps() if step.batch > batch and not step.void]
        return [step for step in taken if step.kind not in ("rewind", "repair")]

    def is_ahead(self, batch: int) -> bool:
        """Whether the table has more than the batches up to `batch`."""
        return bool(self.ledger.batches_after(batch) or self.ledger.replays_after(batch))

    def before(self, steps: Sequence[TableWrite]) -> str:
        """Of each key that `steps` have written, the row that was there before the first of them, as a SELECT."""
        dialect = self.ledger.dialect
        key = identifiers(dialect, [column.name for column in self.table.key_columns])
        step, there = dialect.quote(STEP), dialect.quote(THERE)
        names = identifiers(dialect, self.table.names)
        among = between(step, [each.step for each in steps])
        return (
            f"SELECT {there}, {names} FROM (SELECT {there}, {names}, "
            f"ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {step}) AS {OWN_PREFIX}turn "
            f"FROM {dialect.quote(self.images.name)} WHERE {among}) AS kept WHERE {OWN_PREFIX}turn = 1"
        )

    def restore(self, steps: Sequence[TableWrite], *, saved: int = 0) -> None:
        """Bring the table to where it was before `steps`; what is there now is kept as the step `saved`.

        Called once on a connection, with which its temporary table ends.
        """
        connection, dialect = self.ledger.connection, self.ledger.dialect
        whole = next((step for step in steps if step.whole), None)
        if saved and whole is not None:
            self.images.keep_all(saved)
        if whole is not None:
            names, table = identifiers(dialect, self.table.names), dialect.quote(self.table.name)
            run(connection, f"DELETE FROM {table}")
            self.ledger.run(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM {dialect.quote(self.images.name)} "
                f"WHERE {dialect.quote(STEP)} = ?",
                whole.step,
            )
        single = [step for step in steps if whole is None or step.step < whole.step]
        if not single:
            return
        key = [column.name for column in self.table.key_columns]
        there = dialect.quote(THERE)
        run(connection, dialect.create_temporary(_BACK, self.before(single)))
        if saved and whole is None:
            self.images.keep_from(saved, _BACK)
        gone = f"SELECT {identifiers(dialect, key)} FROM {_BACK} WHERE {there} = 0"
        run(connection, dialect.delete_from(self.table.name, key, gone))
        target = self.table.target(replaces=True)
        source = f"SELECT {identifiers(dialect, target.names)} FROM {_BACK} WHERE {there} = 1"
        run(connection, dialect.insert_from(target, source))

    def counted(self, batch: int, system: str) -> list[Held]:
        """What `rewind` would change, as numbers."""
        connection, dialect = self.ledger.connection, self.ledger.dialect
        steps, where = self.taken(batch), f"table '{self.table.name}' in {system}"
        found = [Held(count=len(self.ledger.batches_after(batch)), what=f"batches of {where} are taken back")]
        whole = next((step for step in steps if step.whole), None)
        if whole is not None:
            [(now,)] = rows_of(connection, f"SELECT COUNT(*) FROM {dialect.quote(self.table.name)}")
            kept = f"SELECT COUNT(*) FROM {dialect.quote(self.images.name)} WHERE {dialect.quote(STEP)} = "
            [(then,)] = self.ledger.select(f"{kept}?", whole.step)
            found.append(Held(count=int(now), what=f"rows of {where} are removed"))
            found.append(Held(count=int(then), what=f"rows of {where} are brought back as they were"))
        elif steps:
            quoted = [dialect.quote(column.name) for column in self.table.key_columns]
            counts = rows_of(
                connection,
                f"SELECT was.{dialect.quote(THERE)}, CASE WHEN held.{quoted[0]} IS NULL THEN 0 ELSE 1 END AS present, "
                f"COUNT(*) FROM ({self.before(steps)}) AS was LEFT JOIN {dialect.quote(self.table.name)} AS held "
                f"ON {self.images.same('held', 'was')} GROUP BY was.{dialect.quote(THERE)}, present",
            )
            done = {(bool(was), bool(present)): int(count) for was, present, count in counts}
            for state, what in _DONE.items():
                if done.get(state):
                    found.append(Held(count=done[state], what=f"rows of {where} {what}"))
        if replays := self.ledger.replays_after(batch):
            found.append(Held(count=len(replays), what=f"corrections by late rows of {where} are taken back"))
        return [each for each in found if each.count]


# Whether a row was there, and is there.
_DONE = {
    (True, True): "get the values that they had",
    (False, True): "are removed, as they came later",
    (True, False): "that were deleted are brought back",
}


@dataclass(frozen=True, kw_only=True)
class TableRewind(OfTable, SinkRewind):
    """A table brought back to an earlier batch; `keeps`: its batches keep what they replace."""

    keeps: bool = True

    def hindrance(self, mode: OutputMode) -> str:
        return "" if self.keeps else "it does not keep what its batches replace"

    def earliest(self, context: SinkContext, batch: int, session: Session) -> int | None:
        if not self.is_there:
            return None
        with self._found(context) as found:
            first = None if found is None else found.earliest
            return None if first is None else max(first, batch)

    def taken_back(self, context: SinkContext, batch: int, session: Session) -> Sequence[Held]:
        with self._found(context) as found:
            return [] if found is None else found.counted(batch, self.system)

    def go_back(self, context: SinkContext, batch: int, session: Session) -> None:
        with locked(self.dialect(), self.table, context) as ledger:
            found = Rewinding.of(ledger, self.key, self.table)
            if found is None or not found.is_ahead(batch):
                return
            reached = found.earliest
            if reached is None or reached > batch:
                what = f"table '{ledger.table}' has kept what was there before only since batch {reached}"
                fix = f"go back to batch {reached} at most, or recompute the result: headrace rebuild {context.query}"
                raise NothingChanged(code="HR580", what=what, fix=fix)
            images = found.images
            _forget(found)
            images.forget_repairs()
            steps = found.taken(batch)
            saved = images.begin(batch, "rewind", whole=any(step.whole for step in steps))
            found.restore(steps, saved=saved)
            images.void([step.step for step in steps], saved)
            lines, before = aside_names(images.name)
            ledger.move_lines(ledger.table, lines, batch + 1)
            ledger.move_lines(images.name, before, batch + 1, of=QUARANTINE)
            ledger.move_lines(images.name, ledger.table, batch, batch, of=QUARANTINE)

    def undo(self, context: SinkContext, batch: int, session: Session) -> None:
        with locked(self.dialect(), self.table, context) as ledger:
            found = Rewinding.of(ledger, self.key, self.table)
            steps = () if found is None else found.images.steps()
            step = next((step for step in reversed(steps) if step.kind == "rewind" and not step.void), None)
            if found is None or step is None or step.batch != batch:
                return
            if found.is_ahead(batch):
                what = f"table '{ledger.table}' has batches of query '{context.query}' after batch {batch} again"
                raise NothingChanged(code="HR583", what=what, fix="go back to that batch once more, or keep them")
            images = found.images
            found.restore([step])
            images.void([each.step for each in images.steps() if each.void == step.step], 0)
            images.forget_steps([step.step])
            lines, before = aside_names(images.name)
            if any(each.whole for each in found.taken(batch)):
                ledger.move_lines(ledger.table, images.name, batch, batch, of=QUARANTINE)
            ledger.move_lines(lines, ledger.table, batch + 1)
            ledger.move_lines(before, images.name, batch + 1, of=QUARANTINE)

    def forget(self, context: SinkContext, session: Session) -> None:
        with locked(self.dialect(), self.table, context) as ledger:
            found = Rewinding.of(ledger, self.key, self.table)
            if found is not None:
                _forget(found)

    @contextmanager
    def _found(self, context: SinkContext) -> Iterator[Rewinding | None]:
        dialect, name = self.dialect(), self.table
        with looking(dialect, context) as connection:
            ledger = Ledger(connection, dialect, context, dialect.real_name(connection, name))
            yield Rewinding.of(ledger, self.key, name)


def _forget(found: Rewinding) -> None:
    found.images.forget_steps([step.step for step in found.images.steps() if step.void or step.kind == "rewind"])
    for name in aside_names(found.images.name):
        found.ledger.delete_lines(name)
