"""A query rebuilt: its result recomputed next to the one in use, verified, compared, and exchanged for it.

The query may run meanwhile, as it was; it has to be stopped for the exchange alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.changes import shadow
from headrace.changes.change import Change, late_note, readers
from headrace.changes.comparison import RebuildReport, report_on
from headrace.changes.reset import set_aside
from headrace.checkpoint import Checkpoint
from headrace.contract import Observer, SinkContext
from headrace.errors import CheckFailed, Finding, HeadraceError, NothingChanged, PlainData
from headrace.generations import driver_lock
from headrace.generations.blame import name_command, reset_command
from headrace.generations.driver_lock import DriverLock
from headrace.generations.facts import StartFacts
from headrace.generations.log import (
    Directory,
    Kind,
    LogRecord,
    QueryLayout,
    history_file,
    log_of,
)
from headrace.history import History
from headrace.model import Project, Query
from headrace.runner.supervise import run
from headrace.starter.plan import plan
from headrace.starter.rename import apply_renames, former_location, table_before, waiting_renames
from headrace.starter.sink_work import ignore, require_stopped
from headrace.storage.durable import remove_tree
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RebuildDone: TypeAlias = Literal["stopped", "compared", "swapped", "rolled-back", "abandoned", "discarded"]

# A round that was shorter is followed by a last one as short, once the query that runs meanwhile is stopped.
SHORT_SECONDS = 20.0
_LOOK_SECONDS = 0.5
_STOP = "stop it by Ctrl-C or SIGTERM, and give the command again, or give it with --wait: nothing is lost meanwhile"


@dataclass(frozen=True, kw_only=True)
class RebuildPlan(PlainData):
    """What a rebuild does.

    Attributes:
        former: The generation whose result is live.
        generation: The generation that is built next to it.
        since: The time from which its sources are read; empty: from the query's beginning.
        notes: What its result will lack.
        continues: Whether the rebuild was begun already.
    """

    query: str
    former: int
    generation: int
    since: str = ""
    notes: Sequence[str] = ()
    continues: bool = False


@dataclass(frozen=True, kw_only=True)
class RebuildResult(PlainData):
    """The outcome of a rebuild.

    Attributes:
        done: What was done.
        generation: The generation that the query now runs as.
        kept: The generation that `discard` deletes; None if there is none.
        notes: What the new result lacks.
        report: The comparison with the former result.
    """

    query: str
    done: RebuildDone
    generation: int
    kept: int | None = None
    notes: Sequence[str] = ()
    report: RebuildReport | None = None


class Rebuild(Change[RebuildPlan, RebuildResult]):
    """A query whose result is recomputed from its sources next to the one in use, and exchanged for it.

    since: read only what came from a time on, which has a zone. accept_partial: begin although the sources no longer
    hold all that the query has read. Its `undo` brings the former generation back, and keeps the rebuilt one;
    its `discard` deletes the rebuilt generation before the exchange, and the former one after it.
    """

    name, _done = "rebuild", "rebuilt"

    def __init__(
        self,
        project: Project,
        query: str,
        *,
        since: datetime | None = None,
        accept_partial: bool = False,
        spark: SparkSession | None = None,
    ) -> None:
        super().__init__(project, query, spark=spark)
        self.since, self.accept_partial = since, accept_partial

    @property
    def status(self) -> shadow.RebuildStatus | None:
        return shadow.rebuild_status(self.project, self.query.name)

    # ------------------------------------------------------------------------------------------------- the ways

    def apply(
        self,
        *,
        approve: Callable[[RebuildReport], bool] | bool = True,
        wait: bool = False,
        reporter: Observer | None = None,
        notify: Callable[[str], None] = ignore,
        reached: Callable[[str], None] = ignore,
    ) -> RebuildResult:
        """Rebuild the query; called again, it continues what was stopped or cut off.

        When the new generation has caught up it is verified and compared with the former one, and `approve` is asked.
        Then the query must be stopped, which `wait` waits for. notify: receives each remark that comes before the work
        begins. Raises as every change.
        """
        self._approve: Callable[[RebuildReport], bool] = approve if callable(approve) else lambda _: approve
        self._wait, self._reporter, self._notify = wait, reporter, notify
        return super().apply(reached=reached)

    @contextmanager
    def _open(self, *, changes: bool = True) -> Iterator[None]:
        self.changes = changes
        try:
            with name_command(self.query):
                self._look()
                with self._hold(driver_lock.take(self.project, self.query, rebuilds=True) if changes else None):
                    if changes:
                        self._look()  # Another command may have ended the rebuild meanwhile.
                    yield
        finally:
            self.close()

    def _look(self) -> None:
        shadow.exchange(self.query)
        super()._look()
        # Of one that was cut off the records may have the place of either.
        live = self.live.at(self._former) if self.record.is_between else self.live
        if self._is_begun and table_before(self.project, self.query, live) is not None:
            why = "its table is to be renamed, and what the rebuild has made has the former name"
            raise self._refusal(why, f"name the table as before; or give the rebuild up: {self._then('discard')}")

    def _require_no_other(self) -> None:
        self._require_no_deleting()

    @property
    def _is_begun(self) -> bool:
        """Whether a rebuild is under way, or was swapped in."""
        current = self.record.current
        return current is not None and current.change == self.name

    def _preview(self) -> RebuildPlan:
        if self._is_begun and self.record.kind != "building":
            raise self._in_the_way()
        facts = self.record.facts if self._is_begun else self._beginning()
        made = self._made if self._is_begun else self._next(self.record.following)
        return RebuildPlan(
            query=self.query.name,
            former=self.record.live.generation,
            generation=made.generation,
            since=facts["since"],
            notes=tuple(facts["notes"]),
            continues=self._is_begun,
        )

    def _make_steps(self, reached: Callable[[str], None]) -> RebuildResult:
        if self._is_begun:
            self._require_same_sink()
        else:
            self._apply_renames()
        if self._is_begun and self.record.kind == "intent":
            with self._hold_stopped(self._wait):
                return self._swap(reached)
        if self._is_begun and self.record.kind != "building":
            raise self._in_the_way()
        if not self._is_begun:
            self._begin_building()
        facts = self.record.facts
        spark = self._streaming_session()
        for note in facts["notes"]:
            self._notify(note)
        with writing_to(self.live.folder):
            self._rebuilt.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        reached("begun")
        begins = datetime.fromisoformat(facts["since"]) if facts["since"] else None
        sources = shadow.sources_of_shadow(self.project, self.query, self.live, begins, spark)
        apart = shadow.shadow(self.project, self.query, sources=sources)
        if not catch_up(apart, self.query, spark, self._reporter):
            return self._result("stopped", self.record.live.generation)
        reached("caught-up")
        report = self._compare(apart, spark)
        reached("compared")
        self._require_right(report)
        if not self._approve(report):
            return replace(self._result("compared", self.record.live.generation), report=report)
        with self._hold_stopped(self._wait):
            # What came while the query was still running.
            verified = Checkpoint(self._rebuilt.checkpoint).last_committed
            if not catch_up(apart, self.query, spark, self._reporter):
                return self._result("stopped", self.record.live.generation)
            self._follow_restored()
            if Checkpoint(self._rebuilt.checkpoint).last_committed != verified:
                report = self._compare(apart, spark)
                self._require_right(report)
            return replace(self._swap(reached), report=report)

    def _begin_building(self) -> None:
        """Keep that a generation is being built, unless another change has begun since this one has looked."""
        facts, made = self._beginning(), self._next(self.record.following)
        self._begin(made, "building", **facts, made=str(made))

    @property
    def _made(self) -> Directory:
        """The directory of the rebuilt generation."""
        made = Directory.parse(str(self.record.facts["made"]))
        assert made is not None
        return made

    @property
    def _rebuilt(self) -> QueryLayout:
        return self.live.at(self._made)

    def _contexts(self, way: Literal["there", "back"]) -> tuple[SinkContext, SinkContext]:
        """Those of the former generation and of the rebuilt one, for the sink's step."""
        former, rebuilt = self._mark(way, self.live.at(self._former)), self.context(self._rebuilt)
        return former, replace(rebuilt, rebuilds=True)

    def _swap(self, reached: Callable[[str], None]) -> RebuildResult:
        """Let the rebuilt generation be the one that the query runs as; the former one is kept."""
        was = self.record.kind
        # By a record of its own, so that the process that began it can do nothing more.
        self._enter("intent", target=self._made)
        self._enter_made()
        reached("recorded")
        try:
            with self.name_sink_faults():
                shadow.exchange(self.query).swap_in(*self._contexts("there"), self.session)
        except NothingChanged:
            reached("unchanged")
            if was == "building":
                self._enter("building")
            raise
        reached("sink")
        return self._end(reached)

    def _end(self, reached: Callable[[str], None], plan: RebuildPlan | None = None) -> RebuildResult:
        shadow.enter_place(self.project, self.query, self._rebuilt, self.query.sink)
        reached("rewritten")
        shadow.take_over_history(self.project, self.query, self._made.generation)
        self._complete()
        shadow.remove_history(self.project, self.query)
        return replace(self._result("swapped", self._made.generation), kept=self._former.generation)

    def _undone(self, reached: Callable[[str], None]) -> RebuildResult:
        if self._is_begun or self.record.current is None:
            self._require_begun("intent", "done", "undoing")
        with self._hold_stopped(False):
            self._swap_out(reached)
        return self._result("rolled-back", self.record.live.generation)

    def _swap_out(self, reached: Callable[[str], None]) -> None:
        """Let the former generation be the one that the query runs as; the rebuilt one is being built, as before."""
        self._undo_begins()
        reached("recorded")
        swap = shadow.exchange(self.query)
        with self._undo_in_sink(reached):
            swap.swap_out(*self._contexts("back"), self.session)
        reached("sink")
        shadow.enter_place(self.project, self.query, self._rebuilt, swap.shadow)
        reached("rewritten")
        self._end_undoing("building", self._made)

    def _discard_steps(self, reached: Callable[[str], None]) -> RebuildResult:
        # After another change was taken back, a rebuild that is done is not the newest record.
        current = self._require_begun("building", "intent", "done", "discarding")
        if current.kind == "done" or (current.kind == "discarding" and not current.facts.get("abandons")):
            with self._hold_stopped(False):
                self._delete_kept(set_aside(self.record), reached)
            return self._result("discarded", self.record.live.generation)
        if self.record.kind == "intent":
            with self._hold_stopped(False):
                self._swap_out(reached)
        rebuilt = self._rebuilt
        if self.record.kind != "discarding":
            self._enter("discarding", facts={**self.record.facts, "abandons": True, "discards": [str(self._made)]})
        reached("recorded-abandoning")
        with self.name_sink_faults():
            context = replace(self.context(rebuilt), rebuilds=True, mark=None)
            shadow.exchange(self.query).drop_shadow(context, self.session)
        reached("dropped")
        shadow.remove_history(self.project, self.query)
        with writing_to(rebuilt.home):
            remove_tree(rebuilt.home)
        reached("removed")
        if (file := history_file(self.project.local_storage)).exists():
            with suppress(HeadraceError), History.open(file) as history:
                history.forget(self.query.name, rebuilt.generation)
        self._enter("discarded", target=None, building=None)
        return self._result("abandoned", self.record.live.generation)

    # ------------------------------------------------------------------------------------------------- its beginning

    def _apply_renames(self) -> None:
        """Let what has run have the names that are declared now, although the query means something else by now.

        A start would do it, and would be refused for the change.
        """
        if any(waiting_renames(self.project, self.query)):
            with self._hold_stopped(self._wait):
                facts = StartFacts.read(self.project, self.query)
                for finding in apply_renames(facts, self._streaming_session(), rebuilds=True):
                    self._notify(finding.what)

    def _beginning(self) -> dict[str, Any]:
        """What is kept of a rebuild that begins; raises where there is nothing to rebuild, or not from all of it.

        What is seen without Spark is refused before it is started.
        """
        project, query, since = self.project, self.query, self.since
        former = self.live
        if Checkpoint(former.checkpoint).last_batch is None:
            raise self._refusal("it has never run", f"run it: headrace run {query.name}")
        if elsewhere := former_location(project, query, former):
            fix = f"name the former sink again, or reset it: {reset_command(query)}"
            raise self._refusal(f"its batches were written to {elsewhere}, which is not its sink any more", fix)
        live = [source.name for source in project.sources_of(query) if source.connector.facts.ephemeral]
        if live:
            why = f"its source '{live[0]}' gives only what comes while it runs"
            raise self._refusal(why, f"reset it: {reset_command(query)}")
        notes = [
            f"query '{name}' reads the result, and would get the new one next to the former; rebuild it as well"
            for name in readers(project, query)
        ]
        notes += late_note(query)
        spark = self._streaming_session()
        if since is not None:
            if unable := shadow.timeless(project, query, since, spark):
                why = f"its source '{unable[0]}' cannot be read from a time on"
                raise self._refusal(why, f"let it be read from the beginning: {self._command('')}")
            text = since.isoformat()
            note = f"the new result has only what came from {text} on"
            return {"since": text, "notes": [note, *notes]}
        missing = list(shadow.gone(project, query, former, spark))
        if missing and not self.accept_partial:
            raise CheckFailed([self._lacking(why) for why in missing])
        notes = [*(f"the new result will not have all of the former one: {why}" for why in missing), *notes]
        (judgement,) = plan(project, [query.name], spark=spark, connect=False)
        if judgement.verdict == "same" and not judgement.notes:
            notes.append("the query is what ran, so that its result is computed once more as it was")
        return {"since": "", "notes": notes}

    def _lacking(self, why: str) -> Finding:
        kept = f"the former rows are kept after the swap, and can be copied, until {self._then('discard')}"
        return Finding(
            code="HR574",
            what=f"the result of query '{self.query.name}' cannot be rebuilt as a whole: {why}",
            fix=f"put it back; or take what is there: {self._command('--accept-partial')}; {kept}",
            where=self.query.where,
        )

    def _streaming_session(self) -> SparkSession:
        """The session in which queries run, begun when it is asked for."""
        from headrace.frames.project_session import session

        if self.spark is None:
            self.spark, self.own_session = session(self.project, purpose="backlog"), True
        return self.spark

    @contextmanager
    def _hold_stopped(self, wait: bool) -> Iterator[None]:
        """Hold the right to run the query, so that no other process does."""
        with self._hold(self._lock(wait)):
            self._follow_restored()
            yield

    def _follow_restored(self) -> None:
        """Take over the record of a start that has restored a directory while the query ran."""
        newest, record = log_of(self.live), self.record
        if newest is not None and (newest.kind, newest.of) == (record.kind, record.of):
            self.record, self.live = newest, replace(self.live.at(newest.live), record=newest)

    def _lock(self, wait: bool) -> DriverLock | None:
        while True:
            try:
                lock = driver_lock.take(self.project, self.query)
                if lock is None:
                    require_stopped(self.project, self.query, fix=_STOP)
                return lock
            except CheckFailed as error:
                if not wait:
                    error.findings = tuple(replace(finding, fix=_STOP) for finding in error.findings)
                    raise
            time.sleep(_LOOK_SECONDS)

    # ------------------------------------------------------------------------------------------------- what is said

    def _require_begun(self, *kinds: Kind) -> LogRecord:
        """Return the record of the rebuild that was begun; raise CheckFailed unless it is at one of `kinds`."""
        current = self.record.current
        if current is None or not self._is_begun:
            raise self._nothing(f"there is no rebuild of query '{self.query.name}'")
        if current.kind not in kinds:
            raise self._in_the_way()
        self._require_same_sink()
        return current

    def _require_same_sink(self) -> None:
        """Raise CheckFailed if the results of the rebuild lie where the sink writes no more."""
        if elsewhere := former_location(self.project, self.query, self.live.at(self._former)):
            why = f"its sink was {elsewhere} when the rebuild began, and is another one now"
            raise self._refusal(why, "name the former sink again")

    def _require_right(self, report: RebuildReport) -> None:
        """Raise CheckFailed if the rebuilt result is wrong."""
        if report.verdict == "mismatch":
            fault = f"the rebuilt result of query '{self.query.name}' is not what its sources give: {report.sentence}"
            fix = f"look at it: {self._then('status')}; and give it up: {self._then('discard')}"
            raise CheckFailed(code="HR573", what=fault, fix=fix, where=self.query.where)

    def _in_the_way(self) -> CheckFailed:
        """The refusal of a way, since the rebuild is at another phase."""
        status = self.status
        assert status is not None
        whose, number = f"the rebuild of query '{self.query.name}'", status.former
        fault, fix = {
            "building": (f"{whose} was not swapped in", f"{self._command('')}; or give it up: {self._then('discard')}"),
            "swapping": (f"the swap of {whose} was cut off", f"end it: {self._then('resume')}"),
            "swapped": (
                f"{whose} is done, and generation {number} is kept",
                f"delete that: {self._then('discard')}; or bring it back: {self._then('undo')}",
            ),
            "rolling-back": (f"the roll-back of {whose} was cut off", f"end it: {self._then('resume')}"),
            "abandoning": (f"{whose} was being given up", f"end that: {self._then('resume')}"),
            "discarding": (f"generation {number} is being deleted", f"end that: {self._then('resume')}"),
        }[status.phase]
        return CheckFailed(code="HR571", what=fault, fix=fix, where=self.query.where)

    def _compare(self, apart: Project, spark: SparkSession) -> RebuildReport:
        """What is found of the rebuilt result, which the log keeps."""
        self._follow_restored()
        report = self._report(apart, spark)
        self._follow_restored()
        self._enter("building", facts={**self.record.facts, "report": report.as_dict()})
        return report

    def _report(self, apart: Project, spark: SparkSession) -> RebuildReport:
        after = replace(self.context(self._rebuilt), rebuilds=True)
        return report_on(apart, self.query, self.context(self.live), after, spark)

    def _result(self, done: RebuildDone, generation: int) -> RebuildResult:
        return RebuildResult(query=self.query.name, done=done, generation=generation)


def catch_up(apart: Project, query: Query, spark: SparkSession, reporter: Observer | None) -> bool:
    """Run the rebuilt generation until a round is short or finds nothing; False: the user has stopped it.

    Raises CheckFailed with what ended it otherwise; given again, it continues.
    """
    while True:
        begun = time.monotonic()
        (outcome,) = run(apart, [query.name], spark=spark, reporter=reporter).outcomes
        if outcome.state == "stopped":
            return False
        if outcome.finding is not None:
            raise CheckFailed(_ended(apart, query, outcome.finding, spark))
        if not outcome.rows or time.monotonic() - begun < SHORT_SECONDS:
            return True


def _ended(apart: Project, query: Query, cause: Finding, spark: SparkSession) -> Finding:
    """Why the rebuild has ended, with what to do about it."""
    again, up = f"headrace rebuild {query.name}", f"headrace change discard {query.name}"
    fix = f"{cause.fix}; then give the command again, which continues; or give it up: {up}"
    with suppress(HeadraceError):
        (judgement,) = plan(apart, [query.name], spark=spark, connect=False)
        if judgement.verdict not in ("same", "safe") and judgement.differences:
            fix = f"the query was changed since the rebuild began; start it again: {up}, and then {again}"
    fault = f"the rebuild of query '{query.name}' has ended ({cause.code}), and the query itself runs on: {cause.what}"
    return replace(cause, code="HR573", severity="error", what=fault, fix=fix)
