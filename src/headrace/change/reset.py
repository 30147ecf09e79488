"""A query reset: what it has done is set aside, and the next generation reads its sources from the beginning.

The record comes first, the sink second; the one step that ends the generation is the renaming of its directory. Each
step may be done again, so that a reset that was cut off is ended by the same command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from headrace.change.exclusive import ChangeWork, exclusive, ignore
from headrace.change.plans import ResetPlan, ResetResult, readers, stored
from headrace.checkpoint import Checkpoint
from headrace.contract import Held
from headrace.errors import CheckFailed, Finding, NothingChanged
from headrace.model import Project, Query
from headrace.queries.changes import Choice, ResetRecord, current, newest_set_aside, require_rewound, reset_cut_off
from headrace.queries.layout import QueryLayout, generations_set_aside
from headrace.queries.rename_record import pending
from headrace.queries.sink_location import former_location, table_before
from headrace.storage.durable import move, remove_tree, sync_directory
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# What tells of the reset itself, where a directory is not moved in one step.
_LAST = ("sink.json", "reset.json")


def plan_reset(project: Project, query: str, *, result: Choice, spark: SparkSession | None = None) -> ResetPlan:
    """What `reset` would do; nothing is changed. Raises as it does."""
    with _work(project, query, spark) as work:
        return work.plan(result)


def reset(
    project: Project,
    query: str,
    *,
    result: Choice,
    spark: SparkSession | None = None,
    reached: Callable[[str], None] = ignore,
) -> ResetResult:
    """Reset `query`, which must not be running: the next start reads its sources from the beginning.

    What it has done is set aside, and `undo_reset` brings it back as long as nothing has run since. result: `drop`
    sets the sink's rows aside too, `keep` lets them stay where rows that come again replace them. Called again after a
    crash, it ends what was begun. Raises ProjectError, CheckFailed, CheckpointError, SinkError or PlatformError.
    """
    with _work(project, query, spark, locked=True) as work:
        return work.reset(result, reached)


def undo_reset(
    project: Project, query: str, *, spark: SparkSession | None = None, reached: Callable[[str], None] = ignore
) -> ResetResult:
    """Bring back what the last reset of `query` has set aside, if no batch was planned since. Raises as `reset`."""
    with _work(project, query, spark, locked=True) as work:
        return work.undo(reached)


def discard_reset(project: Project, query: str, *, spark: SparkSession | None = None) -> ResetResult:
    """Delete what resets of `query` have set aside, in the storage and in the sink. Raises as `reset`."""
    with _work(project, query, spark, locked=True) as work:
        return work.discard()


def _work(
    project: Project, query: str, spark: SparkSession | None, *, locked: bool = False
) -> AbstractContextManager[_Work]:
    return exclusive(project, query, spark, _Work, changes=locked)


class _Work(ChangeWork):
    """One command's work on one query."""

    verb, done = "reset", "reset"

    def __init__(self, project: Project, query: Query, spark: SparkSession | None, changes: bool) -> None:
        super().__init__(project, query, spark, changes)
        require_rewound(self.live)

    # ------------------------------------------------------------------------------------------------- the ways

    def plan(self, result: Choice) -> ResetPlan:
        begun = reset_cut_off(self.live)
        if begun is not None and begun[1].way == "undo":
            raise self.refused("HR580", "the undoing of a reset was cut off", f"end it: {self.command('--undo')}")
        continues = begun is not None and begun[1].way == "reset"
        if begun is not None and continues and begun[1].result != result:
            chosen = begun[1].result
            why = f"a reset that {'keeps' if chosen == 'keep' else 'drops'} its result was begun and cut off"
            way = f"end it: {self.command(f'--{chosen}-result')}; or take it back: {self.command('--undo')}"
            raise self.refused("HR580", why, way)
        self._require_possible(result)
        former = former_location(self.project, self.query, self.live)
        held: tuple[Held, ...] = ()
        if former is None:
            with self.named():
                held = tuple(self.query.sink.reset.held(self.context(self.live), self.session))
        kept = tuple(stored(self.live))
        if not kept and not held and not continues:
            what = f"query '{self.query.name}' has no checkpoint yet, and its sink holds nothing of it"
            raise CheckFailed(Finding(code="HR582", what=what, where=self.query.where))
        return ResetPlan(
            query=self.query.name,
            generation=self.live.generation,
            result=result,
            stored=kept,
            held=held,
            notes=tuple(self._notes(result, former)),
            continues=continues,
        )

    def reset(self, result: Choice, reached: Callable[[str], None]) -> ResetResult:
        plan = self.plan(result)
        live, aside = self.live, self.live.set_aside
        with writing_to(live.home):
            live.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not plan.continues:
                ResetRecord.begun(result).enter(live)
        reached("recorded")
        if former_location(self.project, self.query, live) is None:
            self._move(live, result, plan)
        reached("sink")
        with writing_to(aside.home.parent):
            aside.home.parent.mkdir(exist_ok=True, mode=0o700)
            move(live.home, aside.home, _LAST)
            sync_directory(aside.home.parent)
            sync_directory(live.home.parent)
        reached("moved")
        return self._result("reset", plan)

    def _move(self, live: QueryLayout, result: Choice, plan: ResetPlan) -> None:
        try:
            with self.named():
                if result == "drop":
                    self.query.sink.reset.set_aside(self.context(live), self.session)
                else:
                    self.query.sink.reset.hand_over(self.context(live), live.generation + 1, self.session)
        except NothingChanged:
            if not plan.continues:
                live.reset.unlink(missing_ok=True)
            raise

    def undo(self, reached: Callable[[str], None]) -> ResetResult:
        begun = reset_cut_off(self.live)
        if begun is not None and begun[1].way == "discard":
            why = "what was set aside is being discarded"
            raise self.refused("HR583", why, f"end that: {self.command('--discard')}")
        # Of a reset that was cut off the generation lies where it was.
        old = self.live if ResetRecord.of(self.live) is not None else newest_set_aside(self.live)
        record = None if old is None else ResetRecord.of(old)
        if old is None or record is None:
            raise self.refused("HR583", "no reset of it can be undone", "")
        at_home = QueryLayout(old.storage, old.query, old.generation)
        following = QueryLayout(old.storage, old.query, old.generation + 1)
        if Checkpoint(following.checkpoint).last_batch is not None or self.live.generation > following.generation:
            why = "it has run since, and what it has written would be lost"
            raise self.refused("HR583", why, f"reset it once more, or delete the former: {self.command('--discard')}")
        if former_location(self.project, self.query, old) is not None:
            raise self.refused("HR583", "its sink is another one now", "name the former sink again")
        self._bring_back(old, record, following, reached)
        with writing_to(at_home.home):
            if old.home != at_home.home:
                with suppress(OSError):
                    remove_tree(following.home)
                move(old.home, at_home.home, _LAST)
                sync_directory(at_home.home.parent)
            reached("moved")
            at_home.reset.unlink(missing_ok=True)
            sync_directory(at_home.home)
        return self._result("undo")

    def _bring_back(
        self, old: QueryLayout, record: ResetRecord, following: QueryLayout, reached: Callable[[str], None]
    ) -> None:
        with writing_to(old.home):
            record.on("undo").enter(old)
        reached("recorded")
        result = self.query.sink.reset
        try:
            with self.named():
                if record.result == "drop":
                    result.bring_back(self.context(old), self.session)
                else:
                    result.hand_over(self.context(following), old.generation, self.session)
        except NothingChanged:
            record.enter(old)  # The reset stays as it was before.
            raise
        reached("sink")

    def discard(self) -> ResetResult:
        begun = reset_cut_off(self.live)
        if begun is not None and begun[1].way != "discard":
            why = f"{'a reset' if begun[1].way == 'reset' else 'the undoing of a reset'} was cut off"
            raise self.refused("HR580", why, "end it first, by the same command")
        generations = generations_set_aside(self.live.storage, self.live.query)
        if not generations:
            raise self.refused("HR582", "no reset has set anything aside", "")
        with writing_to(self.live.home):
            # The number of the generation is told by its directory, once those before it are gone.
            self.live.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            sync_directory(self.live.home.parent)
        for number in generations:
            old = QueryLayout(self.live.storage, self.live.query, number).set_aside
            record = ResetRecord.of(old)
            with writing_to(old.home):
                if record is not None:
                    record.on("discard").enter(old)
            if former_location(self.project, self.query, old) is None:
                with self.named():
                    self.query.sink.reset.discard(self.context(old), self.session)
            with writing_to(old.home):
                remove_tree(old.home)
        return self._result("discard")

    # ---------------------------------------------------------------------------------------------- what is told

    def _require_possible(self, result: Choice) -> None:
        sink = self.query.sink
        if (former := pending(self.project, self.query)) is not None:
            why = f"what ran as '{former.former}' is to be taken over under this name, which the next start does"
            fix = f"start it first: headrace run {self.query.name}"
            if sink.swap is not None:
                fix += (
                    f"; or, if its change keeps it from that: headrace rebuild {self.query.name}, which takes it over"
                )
            raise self.refused("HR580", why, f"{fix}; or reset it under its former name, and rename it then")
        if table_before(self.project, self.query, self.live) is not None:
            why = "its table is to be renamed, which the next start does"
            raise self.refused("HR580", why, f"start it first: headrace run {self.query.name}; or remove renamed_from")
        kept = sink.reset.kept(self.query.mode)
        if not kept.possible and not sink.reset.droppable:
            why = f"the sink '{self.query.sink_kind}' can neither take back what it was given nor let it stay"
            way = f"empty its place and its ledger by hand, and remove {self.live.home}"
            raise self.refused("HR580", why, way)
        if result == "keep" and not kept.possible:
            raise self.refused("HR580", f"its result cannot stay: {kept.why}", self.command("--drop-result"))
        if result == "drop" and not sink.reset.droppable:
            why = f"what the sink '{self.query.sink_kind}' was given cannot be taken back"
            raise self.refused("HR580", why, f"{self.command('--keep-result')}: {kept.why}")

    def _notes(self, result: Choice, former: str | None) -> Iterator[str]:
        if former is not None:
            yield f"its batches were written to {former}, which is not its sink any more and stays as it is"
        elif result == "keep":
            yield self.query.sink.reset.kept(self.query.mode).why
        else:
            for name in readers(self.project, self.query):
                yield f"query '{name}' reads the result, and would get every row of it again; reset it as well"
        yield "its sources are read again from where they begin; what they no longer hold does not come again"

    def _result(self, done: str, plan: ResetPlan | None = None) -> ResetResult:
        live = current(self.live)
        kept = tuple(generations_set_aside(live.storage, live.query))
        return ResetResult(query=live.query, done=done, generation=live.generation, set_aside=kept, plan=plan)
