"""A query reset: what it has done is set aside, and the next generation reads its sources from the beginning.

The record of what is intended comes first, the sink second; the record that it is done ends the generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.changes.change import Change, late_note, readers
from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.directory import Part, numbered_files
from headrace.contract import Held, SinkContext
from headrace.errors import CheckpointError, NothingChanged, PlainData
from headrace.generations.changes import ChangeStatus, Choice
from headrace.generations.log import Directory, LogRecord, QueryLayout, log_of, newest_of
from headrace.generations.register import layout_of
from headrace.model import Project
from headrace.starter.rename import former_location
from headrace.storage.durable import size_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDERS = {Part.OFFSETS: "planned batches", Part.COMMITS: "committed batches"}


@dataclass(frozen=True, kw_only=True)
class ResetPlan(PlainData):
    """What a reset does.

    Attributes:
        generation: The generation that is set aside.
        result: Whether the rows of the sink are dropped or stay.
        stored: What is set aside in the storage.
        held: What is set aside in the sink.
        notes: What you should read before you apply the plan.
        continues: Whether the plan ends a reset that was cut off.
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
    """The outcome of a reset.

    Attributes:
        done: What was done.
        generation: The generation that the query now runs as.
        set_aside: The generations that are kept for `undo`.
        plan: The plan that was carried out.
    """

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

    def _require_no_other(self) -> None:
        # A reset is the way back from an adoption that was cut off.
        if not (self.record.change == "adopt" and self.record.is_between):
            super()._require_no_other()

    @property
    def status(self) -> ChangeStatus | None:
        live = layout_of(self.project, self.query)
        standing = self._status_of(f"was reset, and is generation {live.generation}")
        record = log_of(live)
        current = None if record is None else record.current
        if standing is not None or record is None or not (current is None or current.change == "rewind"):
            return standing
        if not (kept := set_aside(record)):
            return None
        name, numbers = self.query.name, ", ".join(str(directory.generation) for directory in kept)
        sentence = f"generation {numbers} of query '{name}' is kept; delete that for good: {self._then('discard')}"
        return ChangeStatus(query=name, change="reset", phase="done", begun="", is_cut_off=False, sentence=sentence)

    # ------------------------------------------------------------------------------------------------- the steps

    def _preview(self) -> ResetPlan:
        record, result = self.record, self.result
        adopts = record.change == "adopt" and record.is_between
        self._require_not_undoing()
        continues = record.kind == "intent" and not adopts
        if continues:
            begun = record.facts["result"]
            if result not in (None, begun):
                why = f"a reset that {'keeps' if begun == 'keep' else 'drops'} its result was begun and cut off"
                way = f"end it: {self._command(f'--{begun}-result')}; or take it back: {self._then('undo')}"
                raise self._refusal(why, way)
            result = begun
        if result is None:
            way = f"{self._command('--drop-result')}; or {self._command('--keep-result')}"
            raise self._refusal("it was not said what becomes of its result", way)
        self._require_possible(result)
        former = former_location(self.project, self.query, self.live)
        held: tuple[Held, ...] = ()
        if former is None:
            with self.name_sink_faults():
                held = tuple(self.query.sink.reset.row_counts(self.context(self.live), self.session))
        kept_files = tuple(count_stored(self.live))
        if adopts and record.target is not None:
            kept_files += tuple(count_stored(self.live.at(record.target)))
        if not kept_files and not continues and not adopts and (not held or self._is_done(result)):
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
        settled = self.record.settled
        return settled is not None and settled.change == "reset" and settled.facts["result"] == result == "keep"

    def _make_steps(self, reached: Callable[[str], None]) -> ResetResult:
        plan, live = self._preview(), self.live
        if plan.continues:
            # By a record of its own, so that the process that began it can do nothing more.
            self._enter("intent")
        else:
            self._begin(self._next(self.record.following), result=plan.result)
        self._enter_made()
        reached("recorded")
        if former_location(self.project, self.query, live) is None:
            try:
                with self.name_sink_faults():
                    self._move(self._mark("there", live), plan.result)
            except NothingChanged:
                if not plan.continues:
                    self._enter("undone", target=None)
                    self._remove_unreachable()
                raise
        reached("sink")
        return self._end(reached, plan)

    def _end(self, reached: Callable[[str], None], plan: ResetPlan | None = None) -> ResetResult:
        self._complete()
        reached("done")
        return self._result("reset", plan)

    def _move(self, context: SinkContext, result: Choice) -> None:
        reset = self.query.sink.reset
        if result == "drop":
            reset.archive(context, self.session)
        else:
            reset.hand_over(context, self._target.generation, self.session)

    def _undone(self, reached: Callable[[str], None]) -> ResetResult:
        self._undo_begins()
        reached("recorded")
        old, new = self.live.at(self._former), self.live.at(self._target)
        if former_location(self.project, self.query, old) is None:
            with self._undo_in_sink():
                if self.record.facts["result"] == "drop":
                    self.query.sink.reset.restore(self._mark("back", old), self.session)
                else:
                    self.query.sink.reset.hand_over(self._mark("back", new), old.generation, self.session)
        reached("sink")
        self._end_undoing()
        reached("done")
        return self._result("undo")

    def _require_not_run(self, record: LogRecord) -> None:
        if record.target != self.record.live or Checkpoint(self.live.checkpoint).last_batch is not None:
            why = "it has run since, and what it has written would be lost"
            way = f"reset it once more, or delete the former: {self._then('discard')}"
            raise self._irreversible(why, way)

    def _require_former(self, record: LogRecord) -> None:
        former = record.former
        if former is not None and former_location(self.project, self.query, self.live.at(former)) is not None:
            raise self._irreversible("its sink is another one now", "name the former sink again")

    def _discard_steps(self, reached: Callable[[str], None]) -> ResetResult:
        nothing = f"no reset of query '{self.query.name}' has set anything aside"
        self._discard_kept(set_aside(self.record), reached, nothing)
        return self._result("discard")

    # ---------------------------------------------------------------------------------------------- what is shown

    def _require_possible(self, result: Choice) -> None:
        sink = self.query.sink
        self._require_named()
        kept = sink.reset.judge_keeping(self.query.mode)
        if not kept.possible and not sink.reset.droppable:
            why = f"the sink '{self.query.sink_kind}' can neither take back what it was given nor let it stay"
            way = f"empty its place and its ledger by hand, and remove {self.live.home}"
            raise self._refusal(why, way)
        if result == "keep" and not kept.possible:
            raise self._refusal(f"its result cannot stay: {kept.why}", self._command("--drop-result"))
        if result == "drop" and not sink.reset.droppable:
            why = f"what the sink '{self.query.sink_kind}' was given cannot be taken back"
            raise self._refusal(why, f"{self._command('--keep-result')}: {kept.why}")

    def _notes(self, result: Choice, former: str | None) -> Iterator[str]:
        if former is not None:
            yield f"its batches were written to {former}, which is not its sink any more and stays as it is"
        elif result == "keep":
            yield self.query.sink.reset.judge_keeping(self.query.mode).why
        else:
            for name in readers(self.project, self.query):
                yield f"query '{name}' reads the result, and would get every row of it again; reset it as well"
        yield from late_note(self.query)
        yield "its sources are read again from where they begin; what they no longer hold does not come again"

    def _result(self, done: str, plan: ResetPlan | None = None) -> ResetResult:
        live = newest_of(self.live)
        kept = tuple(dict.fromkeys(directory.generation for directory in set_aside(self.record)))
        return ResetResult(query=live.query, done=done, generation=live.generation, set_aside=kept, plan=plan)


def set_aside(record: LogRecord) -> tuple[Directory, ...]:
    """The directories of other generations that changes have put out of use, the oldest first."""
    return tuple(directory for directory in record.kept if directory.generation != record.live.generation)


def count_stored(layout: QueryLayout) -> Iterator[Held]:
    """What the storage keeps of a generation, counted."""
    checkpoint = layout.checkpoint
    try:
        batches: Mapping[str, int] = {name: len(numbered_files(checkpoint / name)) for name in _FOLDERS}
    except CheckpointError:
        # Of a directory that cannot be read nothing is known but that it is there.
        batches = {}
    counts = (
        *((batches.get(name, 0), f"{called} in the checkpoint") for name, called in _FOLDERS.items()),
        (size_of(checkpoint) - size_of(checkpoint / Part.STATE), "bytes of the checkpoint"),
        (size_of(checkpoint / Part.STATE), "bytes of state"),
        (_count_archive(layout), "batches in the archive"),
        (sum(map(_lines, layout.quarantine.rglob("*.jsonl"))), "rows in the quarantine of its sources"),
        (sum(1 for _ in layout.tables.glob("*/*")), "versions of its tables"),
        (int(layout.adoption.exists()), "record of an adoption"),
    )
    yield from (Held(count=count, what=fault) for count, fault in counts if count)


def _count_archive(layout: QueryLayout) -> int:
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
