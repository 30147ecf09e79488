"""A query reset: what it has done is set aside, and the next generation reads its sources from the beginning.

The record comes first, the sink second; the one step that ends the generation is the renaming of its directory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.change.change import Change, late_note, readers
from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.logs import Part, numbered_files
from headrace.contract import Held
from headrace.errors import CheckpointError, NothingChanged, PlainData
from headrace.model import Project
from headrace.queries import changes
from headrace.queries.changes import Choice
from headrace.queries.layout import QueryLayout, generations_set_aside, layout_of, newest_of
from headrace.queries.location import former_location, table_before
from headrace.storage.durable import end_move, move, remove_tree, size_of, sync
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDERS = {Part.OFFSETS: "planned batches", Part.COMMITS: "committed batches"}
# What tells of the reset itself, where a directory is not moved in one step.
_LAST = ("sink.json", "reset.json")


@dataclass(frozen=True, kw_only=True)
class ResetPlan(PlainData):
    """What a reset does: what it moves out of the way, in the storage and in the sink, and what is to be known of it.

    result: whether the sink's rows stay. continues: it ends a reset that was cut off.
    """

    query: str
    generation: int
    result: Choice
    stored: tuple[Held, ...]
    held: tuple[Held, ...]
    notes: tuple[str, ...]
    continues: bool = False


@dataclass(frozen=True, kw_only=True)
class ResetResult(PlainData):
    """What was done: the generation that the query now runs as, and those that are kept for `undo`."""

    optional: ClassVar[tuple[str, ...]] = ("plan",)
    query: str
    done: str
    generation: int
    set_aside: tuple[int, ...] = ()
    plan: ResetPlan | None = None


class Reset(Change[ResetPlan, ResetResult]):
    """A query reset: its next start reads its sources from the beginning.

    result: `drop` sets the sink's rows aside too, `keep` lets them stay where rows that come again replace them.
    """

    name, _done = "reset", "reset"

    def __init__(
        self, project: Project, query: str, *, result: Choice | None = None, spark: SparkSession | None = None
    ) -> None:
        super().__init__(project, query, spark=spark)
        self.result = result

    def _look(self) -> None:
        if self.changes:
            # In an object store a directory is moved in steps, and what a crash has left in the former place would be
            # in the way of `undo`.
            with writing_to(self.project.storage):
                live = layout_of(self.project, self.query)
                for number in generations_set_aside(live):
                    end_move(replace(live, generation=number).set_aside.home)
        super()._look()
        self._require_ended(changes.RewindRecord)

    @property
    def status(self) -> changes.ChangeStatus | None:
        live = layout_of(self.project, self.query)
        begun = changes.ResetRecord.cut_off(live)
        if begun is None:
            aside = changes.newest_set_aside(live)
            record = None if aside is None else changes.ResetRecord.of(aside)
            if aside is not None and record is None:
                # It comes last, where a directory is moved in steps.
                record = changes.ResetRecord.of(replace(live, generation=aside.generation))
            return (
                None
                if record is None
                else self._standing("done", record.at, f"was reset, and is generation {live.generation}")
            )
        return self._standing(begun[1].way, begun[1].at, "")

    # ------------------------------------------------------------------------------------------------- the steps

    def _preview(self) -> ResetPlan:
        begun, result = changes.ResetRecord.cut_off(self.live), self.result
        if begun is not None and begun[1].way == "undo":
            raise self._refused("the undoing of a reset was cut off", f"end it: {self._then('undo')}")
        continues = begun is not None and begun[1].way == "reset"
        if begun is not None and continues and result not in (None, begun[1].result):
            kept = begun[1].result
            why = f"a reset that {'keeps' if kept == 'keep' else 'drops'} its result was begun and cut off"
            way = f"end it: {self._command(f'--{kept}-result')}; or take it back: {self._then('undo')}"
            raise self._refused(why, way)
        if begun is not None and continues:
            result = begun[1].result
        if result is None:
            way = f"{self._command('--drop-result')}; or {self._command('--keep-result')}"
            raise self._refused("it was not said what becomes of its result", way)
        self._require_possible(result)
        former = former_location(self.project, self.query, self.live)
        held: tuple[Held, ...] = ()
        if former is None:
            with self.named():
                held = tuple(self.query.sink.reset.row_counts(self.context(self.live), self.session))
        kept_files = tuple(stored(self.live))
        if not kept_files and not continues and (not held or self._is_done(result)):
            raise self._nothing(f"query '{self.query.name}' has no checkpoint yet, and its sink holds nothing of it")
        return ResetPlan(
            query=self.query.name,
            generation=self.live.generation,
            result=result,
            stored=kept_files,
            held=held,
            notes=tuple(self._notes(result, former)),
            continues=continues,
        )

    def _is_done(self, result: Choice) -> bool:
        """Whether the same reset was the last thing that was done to the query: the rows that stay are held still."""
        before = changes.newest_set_aside(self.live)
        record = None if before is None else changes.ResetRecord.of(before)
        if before is None or record is None or before.generation + 1 != self.live.generation:
            return False
        return record.result == result == "keep"

    def _applied(self, reached: Callable[[str], None]) -> ResetResult:
        plan = self._preview()
        live, aside = self.live, self.live.set_aside
        if not plan.continues:
            changes.ResetRecord(result=plan.result, way="reset").begin(live, self._require_alone)
        reached("recorded")
        if former_location(self.project, self.query, live) is None:
            self._move(live, plan)
        reached("sink")
        with writing_to(aside.home.parent):
            aside.home.parent.mkdir(exist_ok=True, mode=0o700)
            move(live.home, aside.home, _LAST)
        reached("moved")
        return self._result("reset", plan)

    def _move(self, live: QueryLayout, plan: ResetPlan) -> None:
        try:
            with self.named():
                if plan.result == "drop":
                    self.query.sink.reset.archive(self.context(live), self.session)
                else:
                    self.query.sink.reset.hand_over(self.context(live), live.generation + 1, self.session)
        except NothingChanged:
            self._require_locked()
            if not plan.continues:
                live.reset.unlink(missing_ok=True)
            raise

    def _undone(self, reached: Callable[[str], None]) -> ResetResult:
        begun = changes.ResetRecord.cut_off(self.live)
        if begun is not None and begun[1].way == "discard":
            why = "what was set aside is being discarded"
            raise self._irreversible(why, f"end that: {self._then('discard')}")
        # Of a reset that was cut off the generation lies where it was.
        old = changes.newest_set_aside(self.live) if begun is None else begun[0]
        record = None if old is None else changes.ResetRecord.of(old)
        if old is None or record is None:
            raise self._irreversible("there is none")
        at_home = replace(self.live, generation=old.generation)
        following = replace(self.live, generation=old.generation + 1)
        run = Checkpoint(following.checkpoint)
        # A driver that was stopped for longer than its lease may have planned a batch since the undoing was begun.
        newest = run.last_batch if begun is None or record.result == "keep" else run.last_committed
        if newest is not None or self.live.generation > following.generation:
            why = "it has run since, and what it has written would be lost"
            way = f"reset it once more, or delete the former: {self._then('discard')}"
            raise self._irreversible(why, way)
        if former_location(self.project, self.query, old) is not None:
            raise self._irreversible("its sink is another one now", "name the former sink again")
        self._bring_back(old, record, following, reached)
        with writing_to(at_home.home):
            with suppress(OSError):
                remove_tree(following.home)
            if old.home != at_home.home:
                self._move_home(old, at_home)
            reached("moved")
            at_home.reset.unlink(missing_ok=True)
            sync(at_home.home)
        return self._result("undo")

    @staticmethod
    def _move_home(old: QueryLayout, new: QueryLayout) -> None:
        try:
            move(old.home, new.home, _LAST)
        except OSError as error:
            is_there = error.errno in (errno.EEXIST, errno.ENOTEMPTY)
            if is_there and not any(stored(old)):
                # It was back, and a command that was stopped for long has written its record where it had been.
                remove_tree(old.home)
            elif is_there and Checkpoint(new.checkpoint).last_committed is None:
                # A driver that was stopped for long has made a directory there since, and no batch of it came in.
                remove_tree(new.home)
                move(old.home, new.home, _LAST)
            else:
                raise

    def _bring_back(
        self, old: QueryLayout, record: changes.ResetRecord, following: QueryLayout, reached: Callable[[str], None]
    ) -> None:
        self._enter(record.on("undo"), old)
        reached("recorded")
        result = self.query.sink.reset
        try:
            with self.named():
                if record.result == "drop":
                    result.restore(self.context(old), self.session)
                else:
                    result.hand_over(self.context(following), old.generation, self.session)
        except NothingChanged:
            self._enter(record, old)  # The reset stays as it was before.
            raise
        reached("sink")

    def _discarded(self, reached: Callable[[str], None]) -> ResetResult:
        begun = changes.ResetRecord.cut_off(self.live)
        if begun is not None and begun[1].way != "discard":
            why = f"{'a reset' if begun[1].way == 'reset' else 'the undoing of a reset'} was cut off"
            raise self._refused(why, f"end it first: {self._then('resume')}")
        generations = generations_set_aside(self.live)
        if not generations:
            raise self._nothing(f"no reset of query '{self.query.name}' has set anything aside")
        with writing_to(self.live.home):
            # The number of the generation is told by its directory, once those before it are gone.
            self.live.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            sync(self.live.home.parent)
        for number in generations:
            old = replace(self.live, generation=number).set_aside
            record = changes.ResetRecord.of(old)
            if record is not None:
                self._enter(record.on("discard"), old)
            if former_location(self.project, self.query, old) is None:
                with self.named():
                    self.query.sink.reset.discard(self.context(old), self.session)
            with writing_to(old.home):
                remove_tree(old.home)
        return self._result("discard")

    # ---------------------------------------------------------------------------------------------- what is told

    def _require_possible(self, result: Choice) -> None:
        sink = self.query.sink
        if table_before(self.project, self.query, self.live) is not None:
            why = "its table is to be renamed, which the next start does"
            fix = f"start it first: headrace run {self.query.name}"
            if sink.swap is not None:
                fix += (
                    f"; or, if its change keeps it from that: headrace rebuild {self.query.name}, which takes it over"
                )
            raise self._refused(why, f"{fix}; or remove renamed_from")
        kept = sink.reset.kept(self.query.mode)
        if not kept.possible and not sink.reset.droppable:
            why = f"the sink '{self.query.sink_kind}' can neither take back what it was given nor let it stay"
            way = f"empty its place and its ledger by hand, and remove {self.live.home}"
            raise self._refused(why, way)
        if result == "keep" and not kept.possible:
            raise self._refused(f"its result cannot stay: {kept.why}", self._command("--drop-result"))
        if result == "drop" and not sink.reset.droppable:
            why = f"what the sink '{self.query.sink_kind}' was given cannot be taken back"
            raise self._refused(why, f"{self._command('--keep-result')}: {kept.why}")

    def _notes(self, result: Choice, former: str | None) -> Iterator[str]:
        if former is not None:
            yield f"its batches were written to {former}, which is not its sink any more and stays as it is"
        elif result == "keep":
            yield self.query.sink.reset.kept(self.query.mode).why
        else:
            for name in readers(self.project, self.query):
                yield f"query '{name}' reads the result, and would get every row of it again; reset it as well"
        yield from late_note(self.query)
        yield "its sources are read again from where they begin; what they no longer hold does not come again"

    def _result(self, done: str, plan: ResetPlan | None = None) -> ResetResult:
        live = newest_of(self.live)
        kept = tuple(generations_set_aside(live))
        return ResetResult(query=live.query, done=done, generation=live.generation, set_aside=kept, plan=plan)


def stored(layout: QueryLayout) -> Iterator[Held]:
    """What the storage keeps of a generation, counted."""
    checkpoint = layout.checkpoint
    try:
        batches: Mapping[str, int] = {name: len(numbered_files(checkpoint / name)) for name in _FOLDERS}
    except CheckpointError:
        # Of a directory that cannot be read nothing is told but that it is there.
        batches = {}
    counts = (
        *((batches.get(name, 0), f"{called} in the checkpoint") for name, called in _FOLDERS.items()),
        (size_of(checkpoint) - size_of(checkpoint / Part.STATE), "bytes of the checkpoint"),
        (size_of(checkpoint / Part.STATE), "bytes of state"),
        (_archived(layout), "batches in the archive"),
        (sum(map(_lines, layout.quarantine.rglob("*.jsonl"))), "rows in the quarantine of its sources"),
        (sum(1 for _ in layout.tables.glob("*/*")), "versions of its tables"),
        (size_of(layout.staged.checkpoint), "bytes of a checkpoint whose adoption was cut off"),
        (int(layout.adoption.exists()), "record of an adoption"),
    )
    yield from (Held(count=count, what=fault) for count, fault in counts if count)


def _archived(layout: QueryLayout) -> int:
    try:
        return Archive(layout.archive).size()
    except OSError:
        return 0


def _lines(file: Path) -> int:
    try:
        with file.open("rb") as opened:
            return sum(1 for _ in opened)
    except OSError:
        return 0
