"""Return a result table and its ledger to the end of an earlier batch, in one transaction that can be undone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.connectors.sql.before_images import STEP, THERE, BeforeImages, TableWrite, between
from headrace.connectors.sql.change_memory import memory_of
from headrace.connectors.sql.ledger import Ledger, aside_names
from headrace.connectors.sql.result_table import ResultTable
from headrace.connectors.sql.sink_table import SinkTable
from headrace.connectors.sql.system_tables import LEDGER, OWN_PREFIX, QUARANTINE
from headrace.connectors.sql.types import columns
from headrace.contract import Held, OutputMode, Session, SinkContext, SinkRewind
from headrace.errors import NothingChanged

_BACK = f"{OWN_PREFIX}back"


@dataclass(frozen=True)
class Rewinding:
    """A generation's table, on the ledger's connection, with the rows that its batches have replaced."""

    ledger: Ledger
    table: ResultTable
    images: BeforeImages

    @classmethod
    def of(cls, ledger: Ledger, key: Sequence[str], name: str) -> Rewinding | None:
        """Return None where the table holds nothing of the generation."""
        from pyspark.sql.types import StructType

        owner = ledger.owner_by(name) if ledger.has_table(LEDGER) else None
        if owner is None or not owner.is_of(ledger.context) or not ledger.has_table(ledger.table):
            return None
        kept_columns, _ = columns(StructType.fromJson(json.loads(owner.schema)))
        table = ResultTable(name=ledger.table, key=tuple(key), columns=kept_columns)
        return cls(ledger, table, BeforeImages.of(ledger, table))

    @property
    def earliest(self) -> int | None:
        """The first batch that the table can go back to: every later one has kept what it replaced."""
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

    def steps_after(self, batch: int) -> list[TableWrite]:
        """Return the steps after `batch`, oldest first; repairs stay."""
        taken = [step for step in self.images.steps() if step.batch > batch and not step.void]
        return [step for step in taken if step.kind not in ("rewind", "repair")]

    def is_ahead(self, batch: int) -> bool:
        """Whether the table has more than the batches up to `batch`."""
        return bool(self.ledger.batches_after(batch) or self.ledger.replays_after(batch))

    def rows_before(self, steps: Sequence[TableWrite]) -> str:
        """Return a SELECT of the rows from before the first of `steps`, for each key that they have written."""
        dialect = self.ledger.dialect
        key = dialect.identifiers([column.name for column in self.table.key_columns])
        step, there = dialect.quote(STEP), dialect.quote(THERE)
        names = dialect.identifiers(self.table.names)
        among = between(step, [write.step for write in steps])
        return (
            f"SELECT {there}, {names} FROM (SELECT {there}, {names}, "
            f"ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {step}) AS {OWN_PREFIX}turn "
            f"FROM {dialect.quote(self.images.name)} WHERE {among}) AS kept WHERE {OWN_PREFIX}turn = 1"
        )

    def restore(self, steps: Sequence[TableWrite], *, saved: int = 0) -> None:
        """Bring the table to where it was before `steps`; the present rows are kept as the step `saved`.

        Called once on a connection, with which its temporary table ends.
        """
        ledger, dialect = self.ledger, self.ledger.dialect
        table, there = dialect.quote(self.table.name), dialect.quote(THERE)
        names = dialect.identifiers(self.table.names)
        whole = next((step for step in steps if step.whole), None)
        if whole is not None:
            if saved:
                self.images.keep_all(saved)
            ledger.run(f"DELETE FROM {table}")
            ledger.run(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM {dialect.quote(self.images.name)} "
                f"WHERE {dialect.quote(STEP)} = ?",
                whole.step,
            )
        single = [step for step in steps if whole is None or step.step < whole.step]
        if not single:
            return
        key = [column.name for column in self.table.key_columns]
        ledger.run(dialect.create_temporary(_BACK, self.rows_before(single)))
        if saved and whole is None:
            self.images.keep_from(saved, _BACK)
        gone = f"SELECT {dialect.identifiers(key)} FROM {_BACK} WHERE {there} = 0"
        ledger.run(dialect.delete_from(self.table.name, key, gone))
        source = f"SELECT {names} FROM {_BACK} WHERE {there} = 1"
        ledger.run(dialect.insert_from(self.table.target(replaces=True), source))

    def counts(self, batch: int, system: str) -> list[Held]:
        """Count what `go_back` would change."""
        ledger, dialect = self.ledger, self.ledger.dialect
        steps, where = self.steps_after(batch), f"table '{self.table.name}' in {system}"
        counts = [Held(count=len(ledger.batches_after(batch)), what=f"batches of {where} are taken back")]
        whole = next((step for step in steps if step.whole), None)
        if whole is not None:
            kept = f"SELECT COUNT(*) FROM {dialect.quote(self.images.name)} WHERE {dialect.quote(STEP)} = ?"
            [(then,)] = ledger.select(kept, whole.step)
            counts.append(Held(count=ledger.count_rows(self.table.name), what=f"rows of {where} are removed"))
            counts.append(Held(count=int(then), what=f"rows of {where} are brought back as they were"))
        elif steps:
            key, there = dialect.quote(self.table.key_columns[0].name), dialect.quote(THERE)
            rows = ledger.select(
                f"SELECT was.{there}, CASE WHEN held.{key} IS NULL THEN 0 ELSE 1 END AS present, COUNT(*) "
                f"FROM ({self.rows_before(steps)}) AS was LEFT JOIN {dialect.quote(self.table.name)} AS held "
                f"ON {self.images.same('held', 'was')} GROUP BY was.{there}, present"
            )
            changed = {(bool(was), bool(present)): int(count) for was, present, count in rows}
            counts += [
                Held(count=changed.get(state, 0), what=f"rows of {where} {change}") for state, change in _DONE.items()
            ]
        replays = len(ledger.replays_after(batch))
        counts.append(Held(count=replays, what=f"corrections by late rows of {where} are taken back"))
        return [held for held in counts if held.count]


# Whether a row was there, and is there.
_DONE = {
    (True, True): "get the values that they had",
    (False, True): "are removed, as they came later",
    (True, False): "that were deleted are brought back",
}


@dataclass(frozen=True, kw_only=True)
class TableRewind(SinkTable, SinkRewind):
    """A table brought back to an earlier batch; `keeps`: its batches keep what they replace."""

    keeps: bool = True

    def hindrance(self, mode: OutputMode) -> str:
        return "" if self.keeps else "it does not keep what its batches replace"

    def earliest(self, context: SinkContext, batch: int, session: Session) -> int | None:
        if not self.is_there:
            return None
        with self.open_ledger(context) as ledger:
            rewinding = Rewinding.of(ledger, self.key, self.table)
            first = None if rewinding is None else rewinding.earliest
            return None if first is None else max(first, batch)

    def list_taken_back(self, context: SinkContext, batch: int, session: Session) -> Sequence[Held]:
        with self.open_ledger(context) as ledger:
            rewinding = Rewinding.of(ledger, self.key, self.table)
            return [] if rewinding is None else rewinding.counts(batch, self.system)

    def go_back(self, context: SinkContext, batch: int, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            rewinding = Rewinding.of(ledger, self.key, self.table)
            if rewinding is None or not rewinding.is_ahead(batch):
                return
            earliest = rewinding.earliest
            if earliest is None or earliest > batch:
                fault = f"table '{ledger.table}' has kept what was there before only since batch {earliest}"
                fix = f"go back to batch {earliest} at most, or recompute the result: headrace rebuild {context.query}"
                raise NothingChanged(code="HR580", what=fault, fix=fix)
            images = rewinding.images
            _forget(rewinding)
            images.forget_repairs()
            steps = rewinding.steps_after(batch)
            saved = images.begin(batch, "rewind", whole=any(step.whole for step in steps))
            rewinding.restore(steps, saved=saved)
            images.void([step.step for step in steps], saved)
            lines, before = aside_names(images.name)
            if (memory := memory_of(ledger)) is not None:
                memory.hide_after(batch)
            ledger.move_lines(ledger.table, lines, batch + 1)
            ledger.move_lines(images.name, before, batch + 1, of=QUARANTINE)
            ledger.move_lines(images.name, ledger.table, batch, batch, of=QUARANTINE)

    def undo(self, context: SinkContext, batch: int, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            rewinding = Rewinding.of(ledger, self.key, self.table)
            steps = () if rewinding is None else rewinding.images.steps()
            step = next((step for step in reversed(steps) if step.kind == "rewind" and not step.void), None)
            if rewinding is None or step is None or step.batch != batch:
                return
            if rewinding.is_ahead(batch):
                fault = f"table '{ledger.table}' has batches of query '{context.query}' after batch {batch} again"
                raise NothingChanged(code="HR583", what=fault, fix="go back to that batch once more, or keep them")
            images = rewinding.images
            rewinding.restore([step])
            images.void([write.step for write in images.steps() if write.void == step.step], 0)
            images.forget_steps([step.step])
            lines, before = aside_names(images.name)
            if any(write.whole for write in rewinding.steps_after(batch)):
                ledger.move_lines(ledger.table, images.name, batch, batch, of=QUARANTINE)
            if (memory := memory_of(ledger)) is not None:
                memory.show_hidden()
            ledger.move_lines(lines, ledger.table, batch + 1)
            ledger.move_lines(before, images.name, batch + 1, of=QUARANTINE)

    def forget(self, context: SinkContext, session: Session) -> None:
        with self.change_ledger(context) as ledger:
            if ledger is None:
                return
            rewinding = Rewinding.of(ledger, self.key, self.table)
            if rewinding is not None:
                _forget(rewinding)


def _forget(rewinding: Rewinding) -> None:
    images = rewinding.images
    images.forget_steps([step.step for step in images.steps() if step.void or step.kind == "rewind"])
    for name in aside_names(images.name):
        rewinding.ledger.delete_lines(name)
    if (memory := memory_of(rewinding.ledger)) is not None:
        memory.forget_hidden()
