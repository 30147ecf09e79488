"""A query rebuilt: its result recomputed beside the one in use, verified, compared, and exchanged for it.

The query may run meanwhile, as it was; it has to be stopped for the exchange alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.change import shadow
from headrace.change.change import Change, late_note, readers
from headrace.change.comparison import RebuildReport, report_on
from headrace.checkpoint import Checkpoint
from headrace.contract import Observer
from headrace.errors import CheckFailed, Finding, HeadraceError, PlainData
from headrace.history import History
from headrace.model import Project, Query
from headrace.queries import driver_lock
from headrace.queries.blame import commanded, reset_command
from headrace.queries.changes import Phase, RebuildRecord, ResetRecord, RewindRecord, require_ended
from headrace.queries.driver_lock import DriverLock
from headrace.queries.facts import StartFacts
from headrace.queries.layout import QueryLayout, history_file, latest_generation, layout_of
from headrace.queries.location import former_location, table_before, waiting_renames
from headrace.run.plan import plan
from headrace.run.rename import apply_renames
from headrace.run.sink_work import ignore, require_stopped
from headrace.run.supervise import run
from headrace.storage.durable import remove_tree
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RebuildDone: TypeAlias = Literal["stopped", "compared", "swapped", "rolled-back", "abandoned", "discarded"]

# A round that was shorter is followed by a last one as short, once the query that runs beside is stopped.
SHORT_SECONDS = 20.0
_LOOK_SECONDS = 0.5
_STOP = "stop it by Ctrl-C or SIGTERM, and give the command again, or give it with --wait: nothing is lost meanwhile"


@dataclass(frozen=True, kw_only=True)
class RebuildPlan(PlainData):
    """What a rebuild does: generation `generation` is built beside `former`. notes: what its result will lack.

    since: the time that its sources begin at; '': where the query began. continues: it was begun already.
    """

    query: str
    former: int
    generation: int
    since: str = ""
    notes: Sequence[str] = ()
    continues: bool = False


@dataclass(frozen=True, kw_only=True)
class RebuildResult(PlainData):
    """What was done, and which generation the query now runs as. kept: the one that `discard` deletes."""

    query: str
    done: RebuildDone
    generation: int
    kept: int | None = None
    notes: Sequence[str] = ()
    report: RebuildReport | None = None


class Rebuild(Change[RebuildPlan, RebuildResult]):
    """A query whose result is recomputed from its sources beside the one in use, and exchanged for it.

    since: read only what came from a time on, which has a zone. accept_partial: begin although the sources no longer
    hold all that the query has read. Its `undo` brings the former generation back, and keeps the rebuilt one beside;
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
    def _layout(self) -> QueryLayout:
        """The query's places, whichever generation it runs as."""
        return layout_of(self.project, self.query)

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

    def resume(
        self,
        *,
        approve: Callable[[RebuildReport], bool] | bool = True,
        wait: bool = False,
        reporter: Observer | None = None,
        notify: Callable[[str], None] = ignore,
        reached: Callable[[str], None] = ignore,
    ) -> RebuildResult:
        """End what was stopped or cut off, whichever way it went. Raises as every change."""
        record = RebuildRecord.of(self._layout)
        if record is None or record.phase == "swapped":
            raise self._nothing(f"no rebuild of query '{self.query.name}' was cut off")
        if record.phase == "rolling-back":
            return self.undo(reached=reached)
        if record.phase in ("abandoning", "discarding"):
            return self.discard(reached=reached)
        return self.apply(approve=approve, wait=wait, reporter=reporter, notify=notify, reached=reached)

    @contextmanager
    def _opened(self, *, changes: bool = True) -> Iterator[None]:
        self.changes = changes
        try:
            with commanded(self.query):
                self._look()
                with self._locked(driver_lock.take(self.project, self.query, rebuilds=True) if changes else None):
                    yield
        finally:
            self.close()

    def _look(self) -> None:
        shadow.exchange(self.query)
        record = RebuildRecord.of(self._layout)
        if record is None:
            return
        number = latest_generation(self._layout)
        if record.phase in ("swapping", "rolling-back"):
            number = record.former  # Of the other one a part may lie there.
        if table_before(self.project, self.query, self._generation(number)) is not None:
            why = "its table is to be renamed, and what the rebuild has made has the former name"
            raise self._refused(why, f"name the table as before; or give the rebuild up: {self._then('discard')}")

    def _preview(self) -> RebuildPlan:
        record = RebuildRecord.of(self._layout)
        if record is not None and record.phase != "building":
            raise self._in_the_way(record)
        begun = record or self._beginning()
        return RebuildPlan(
            query=self.query.name,
            former=begun.former,
            generation=begun.generation,
            since=begun.since,
            notes=begun.notes,
            continues=record is not None,
        )

    def _applied(self, reached: Callable[[str], None]) -> RebuildResult:
        record = RebuildRecord.of(self._layout)
        if record is not None:
            self._require_same_sink(record)
        else:
            self._bring_along()
        if record is not None and record.phase == "swapping":
            with self._stopped(self._wait):
                return self._swapped(shadow.swap_in(self, record, reached))
        if record is not None and record.phase != "building":
            raise self._in_the_way(record)
        if record is None:
            record = self._beginning()
            number = record.former
            record.begin(self._layout, lambda: self._require_unchanged(number))
            # A driver of a rebuild that was discarded may have gone on for a moment.
            self._remove_beside(record)
        spark = self._streaming_session()
        for note in record.notes:
            self._notify(note)
        shadow.make(self.project, self.query, record)
        reached("begun")
        begins = datetime.fromisoformat(record.since) if record.since else None
        sources = shadow.sources_beside(self.project, self.query, self._generation(record.former), begins, spark)
        beside = shadow.shadow(self.project, self.query, sources=sources)
        if not catch_up(beside, self.query, spark, self._reporter):
            return self._result("stopped", record.former)
        reached("caught-up")
        record, report = self._compared(beside, record, spark)
        reached("compared")
        self._require_right(report)
        if not self._approve(report):
            return replace(self._result("compared", record.former), report=report)
        with self._stopped(self._wait):
            # What came while the query was still running.
            made = Checkpoint(shadow.layout_beside(self.project, self.query, record).checkpoint)
            verified = made.last_committed
            if not catch_up(beside, self.query, spark, self._reporter):
                return self._result("stopped", record.former)
            if made.last_committed != verified:
                record, report = self._compared(beside, record, spark)
                self._require_right(report)
            self._require_locked()
            return replace(self._swapped(shadow.swap_in(self, record, reached)), report=report)

    def _undone(self, reached: Callable[[str], None]) -> RebuildResult:
        record = self._required("swapping", "swapped", "rolling-back")
        newest = latest_generation(self._layout)
        if newest > record.generation:
            why = f"it was reset since, and is generation {newest} now"
            fix = f"take that back first: {self._then('undo')}; or delete the former one for good"
            raise self._irreversible(why, fix)
        with self._stopped(False):
            shadow.swap_out(self, record, reached)
        return self._result("rolled-back", record.former)

    def _discarded(self, reached: Callable[[str], None]) -> RebuildResult:
        record = self._required("building", "abandoning", "swapping", "swapped", "discarding")
        if record.phase in ("swapped", "discarding"):
            return self._without_former(record)
        if record.phase == "swapping":
            with self._stopped(False):
                record = shadow.swap_out(self, record, reached)
        record = record.at_phase("abandoning").enter(self._layout)
        reached("recorded-abandoning")
        self._remove_beside(record, reached)
        if (file := history_file(self.project.local_storage)).exists():
            with suppress(HeadraceError), History.open(file) as history:
                history.forget(self.query.name, record.generation)
        RebuildRecord.remove(self._layout)
        return self._result("abandoned", record.former)

    def _remove_beside(self, record: RebuildRecord, reached: Callable[[str], None] = ignore) -> None:
        with self.named():
            rebuilt = self.context(shadow.layout_beside(self.project, self.query, record))
            shadow.exchange(self.query).drop_beside(replace(rebuilt, rebuilds=True), self.session)
        reached("dropped")
        shadow.remove(self.project, self.query)
        reached("removed")

    def _without_former(self, record: RebuildRecord) -> RebuildResult:
        with self._stopped(False):
            record = record.at_phase("discarding").enter(self._layout)
            self._require_locked()
            former = self._generation(record.former)
            with self.named():
                self.query.sink.reset.discard(self.context(former), self.session)
            with writing_to(former.home):
                remove_tree(former.home)
            RebuildRecord.remove(self._layout)
        return self._result("discarded", latest_generation(self._layout))

    # ------------------------------------------------------------------------------------------------- its beginning

    def _bring_along(self) -> None:
        """Let what has run have the names that are declared now, although the query means something else by now.

        A start would do it, and would be refused for the change.
        """
        if any(waiting_renames(self.project, self.query)):
            with self._stopped(self._wait):
                facts = StartFacts.read(self.project, self.query)
                for finding in apply_renames(facts, self._streaming_session(), rebuilds=True):
                    self._notify(finding.what)

    def _beginning(self) -> RebuildRecord:
        """The record of a rebuild that begins; raises where there is nothing to rebuild, or not from all of it.

        What is seen without Spark is refused before it is started.
        """
        project, query, since = self.project, self.query, self.since
        number = latest_generation(self._layout)
        former = self._generation(number)
        require_ended(former, ResetRecord, RewindRecord)
        if Checkpoint(former.checkpoint).last_batch is None:
            raise self._refused("it has never run", f"run it: headrace run {query.name}")
        if elsewhere := former_location(project, query, former):
            fix = f"name the former sink again, or reset it: {reset_command(query)}"
            raise self._refused(f"its batches were written to {elsewhere}, which is not its sink any more", fix)
        live = [source.name for source in project.sources_of(query) if source.connector.facts.ephemeral]
        if live:
            why = f"its source '{live[0]}' gives only what comes while it runs"
            raise self._refused(why, f"reset it: {reset_command(query)}")
        notes = [
            f"query '{name}' reads the result, and would get the new one beside the former; rebuild it as well"
            for name in readers(project, query)
        ]
        notes += late_note(query)
        spark = self._streaming_session()
        if since is not None:
            if unable := shadow.timeless(project, query, since, spark):
                why = f"its source '{unable[0]}' cannot be read from a time on"
                raise self._refused(why, f"let it be read from the beginning: {self._command('')}")
            text = since.isoformat()
            note = f"the new result has only what came from {text} on"
            return RebuildRecord.begun(number, (note, *notes), since=text)
        missing = list(shadow.gone(project, query, former, spark))
        if missing and not self.accept_partial:
            raise CheckFailed([self._lacking(why) for why in missing])
        notes = [*(f"the new result will not have all of the former one: {why}" for why in missing), *notes]
        (judgement,) = plan(project, [query.name], spark=spark, connect=False)
        if judgement.verdict == "same" and not judgement.notes:
            notes.append("the query is what ran, so that its result is computed once more as it was")
        return RebuildRecord.begun(number, tuple(notes))

    def _require_unchanged(self, former: int) -> None:
        """Raise if another change of the query has begun, or was made, since this one has looked at it."""
        layout = self._generation(former)
        self._require_locked()
        require_ended(layout, ResetRecord, RewindRecord)
        newest = latest_generation(layout)
        if newest != former or Checkpoint(layout.checkpoint).last_batch is None:
            raise self._refused("another command was changing it", f"give the command again: {self._command('')}")

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
        from headrace.build.project_session import session

        if self.spark is None:
            self.spark, self.own_session = session(self.project, purpose="backlog"), True
        return self.spark

    @contextmanager
    def _stopped(self, wait: bool) -> Iterator[None]:
        """Hold the right to run the query, so that nobody else does."""
        with self._locked(self._lock(wait)):
            yield

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

    def _required(self, *phases: Phase) -> RebuildRecord:
        """The record, which has to be at one of `phases`; raises CheckFailed."""
        record = RebuildRecord.of(self._layout)
        if record is None:
            raise self._nothing(f"there is no rebuild of query '{self.query.name}'")
        if record.phase not in phases:
            raise self._in_the_way(record)
        self._require_same_sink(record)
        return record

    def _require_same_sink(self, record: RebuildRecord) -> None:
        """Raise CheckFailed if the results of the rebuild lie where the sink writes no more."""
        if elsewhere := former_location(self.project, self.query, self._generation(record.former)):
            why = f"its sink was {elsewhere} when the rebuild began, and is another one now"
            raise self._refused(why, "name the former sink again")

    def _require_right(self, report: RebuildReport) -> None:
        """Raise CheckFailed if the rebuilt result is wrong."""
        if report.verdict == "mismatch":
            fault = f"the rebuilt result of query '{self.query.name}' is not what its sources give: {report.sentence}"
            fix = f"look at it: {self._then('status')}; and give it up: {self._then('discard')}"
            raise CheckFailed(code="HR573", what=fault, fix=fix, where=self.query.where)

    def _in_the_way(self, record: RebuildRecord) -> CheckFailed:
        """The refusal of a way, since the rebuild is at another phase."""
        whose, number = f"the rebuild of query '{self.query.name}'", record.former
        said: dict[Phase, tuple[str, str]] = {
            "building": (f"{whose} was not swapped in", f"{self._command('')}; or give it up: {self._then('discard')}"),
            "swapping": (f"the swap of {whose} was cut off", f"end it: {self._then('resume')}"),
            "swapped": (
                f"{whose} is done, and generation {number} is kept",
                f"delete that: {self._then('discard')}; or bring it back: {self._then('undo')}",
            ),
            "rolling-back": (f"the roll-back of {whose} was cut off", f"end it: {self._then('resume')}"),
            "abandoning": (f"{whose} was being given up", f"end that: {self._then('resume')}"),
            "discarding": (f"generation {number} is being deleted", f"end that: {self._then('resume')}"),
        }
        fault, fix = said[record.phase]
        return CheckFailed(code="HR571", what=fault, fix=fix, where=self.query.where)

    def _generation(self, number: int) -> QueryLayout:
        return replace(self._layout, generation=number)

    def _compared(
        self, beside: Project, record: RebuildRecord, spark: SparkSession
    ) -> tuple[RebuildRecord, RebuildReport]:
        """What is found of the rebuilt result, and the record with it."""
        report = self._report(beside, record, spark)
        self._require_locked()
        return replace(record, report=report.as_dict()).enter(self._layout), report

    def _report(self, beside: Project, record: RebuildRecord, spark: SparkSession) -> RebuildReport:
        after = replace(self.context(shadow.layout_beside(self.project, self.query, record)), rebuilds=True)
        return report_on(beside, self.query, self.context(self._generation(record.former)), after, spark)

    def _swapped(self, record: RebuildRecord) -> RebuildResult:
        return replace(self._result("swapped", record.generation), kept=record.former)

    def _result(self, done: RebuildDone, generation: int) -> RebuildResult:
        return RebuildResult(query=self.query.name, done=done, generation=generation)


def catch_up(beside: Project, query: Query, spark: SparkSession, reporter: Observer | None) -> bool:
    """Run the rebuilt generation until a round is short or finds nothing; False: the user has stopped it.

    Raises CheckFailed with what ended it otherwise; given again, it continues.
    """
    while True:
        begun = time.monotonic()
        (outcome,) = run(beside, [query.name], spark=spark, reporter=reporter).outcomes
        if outcome.state == "stopped":
            return False
        if outcome.finding is not None:
            raise CheckFailed(_ended(beside, query, outcome.finding, spark))
        if not outcome.rows or time.monotonic() - begun < SHORT_SECONDS:
            return True


def _ended(beside: Project, query: Query, cause: Finding, spark: SparkSession) -> Finding:
    """Why the rebuild has ended, with what to do about it."""
    again, up = f"headrace rebuild {query.name}", f"headrace change discard {query.name}"
    fix = f"{cause.fix}; then give the command again, which continues; or give it up: {up}"
    with suppress(HeadraceError):
        (judgement,) = plan(beside, [query.name], spark=spark, connect=False)
        if judgement.verdict not in ("same", "safe") and judgement.differences:
            fix = f"the query was changed since the rebuild began; start it again: {up}, and then {again}"
    fault = f"the rebuild of query '{query.name}' has ended ({cause.code}), and the query itself runs on: {cause.what}"
    return replace(cause, code="HR573", severity="error", what=fault, fix=fix)
