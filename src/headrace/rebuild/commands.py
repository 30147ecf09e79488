"""A query rebuilt, the rebuild given up, rolled back or made final."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckFailed, Finding, HeadraceError, ProjectError, nearest
from headrace.history import History
from headrace.model import Project
from headrace.model.layout import QueryLayout, history_file, latest_generation
from headrace.plan.ways_out import reset_command
from headrace.rebuild import history, shadow, swap
from headrace.rebuild.catching_up import catch_up
from headrace.rebuild.comparing import report_on
from headrace.rebuild.values import Done, RebuildReport, RebuildResult
from headrace.run import driver_lock
from headrace.run.driver_lock import DriverLock
from headrace.run.exchangeable import require_local
from headrace.run.naming import commanded
from headrace.run.plan import plan
from headrace.run.rebuild_record import Phase, RebuildRecord, forget
from headrace.run.rename import brought_along
from headrace.run.repartition import require_stopped
from headrace.run.reset_plan import readers
from headrace.run.reset_record import require_whole
from headrace.run.result import Reporter
from headrace.run.sink_location import former_location, table_before
from headrace.run.sink_work import SinkWork
from headrace.run.waiting_renames import waiting_renames
from headrace.storage.faults import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.5
_STOP = "stop it by Ctrl-C or SIGTERM, and give the command again, or give it with --wait: nothing is lost meanwhile"


def _nobody(step: str) -> None:
    """Tell nobody."""


def _always(report: RebuildReport) -> bool:
    return True


def rebuild(
    project: Project,
    query: str,
    *,
    approve: Callable[[RebuildReport], bool] = _always,
    since: datetime | None = None,
    accept_partial: bool = False,
    wait: bool = False,
    spark: SparkSession | None = None,
    reporter: Reporter | None = None,
    told: Callable[[str], None] = _nobody,
    reached: Callable[[str], None] = _nobody,
) -> RebuildResult:
    """Compute the result of `query` anew from its sources beside the one that goes on, and exchange the two.

    The query may run meanwhile, as it was. When the new generation has caught up it is verified and compared with the
    former one, and `approve` is asked; then the query must be stopped, which `wait` waits for. Called again, it
    continues what was stopped or cut off. since: read only what came from a time on, which has a zone. accept_partial:
    begin although the sources no longer hold all that the query has read. Raises ProjectError, CheckFailed,
    CheckpointError, SourceError, SinkError or PlatformError.
    """
    with _work(project, query, spark) as work:
        return work.rebuild(
            approve,
            since=since,
            accept_partial=accept_partial,
            wait=wait,
            reporter=reporter,
            told=told,
            at=reached,
        )


def abandon_rebuild(
    project: Project, query: str, *, spark: SparkSession | None = None, reached: Callable[[str], None] = _nobody
) -> RebuildResult:
    """Delete what the rebuild of `query` has made; a swap that was cut off is taken back. Raises as `rebuild`."""
    with _work(project, query, spark) as work:
        return work.abandon(reached)


def roll_back_rebuild(
    project: Project, query: str, *, spark: SparkSession | None = None, reached: Callable[[str], None] = _nobody
) -> RebuildResult:
    """Let `query` be the generation again that it was before the swap; the other one is kept beside."""
    with _work(project, query, spark) as work:
        return work.roll_back(reached)


def discard_rebuild(project: Project, query: str, *, spark: SparkSession | None = None) -> RebuildResult:
    """Delete the generation that was kept at the swap, in the storage and in the sink. Raises as `rebuild`."""
    with _work(project, query, spark) as work:
        return work.discard()


@contextmanager
def _work(project: Project, query: str, spark: SparkSession | None) -> Iterator[_Work]:
    if query not in project.queries:
        fix = nearest(query, project.queries)
        raise ProjectError(Finding(code="HR606", what=f"no query is named '{query}'", fix=fix))
    declared = project.queries[query]
    require_local(project, declared, "rebuilt", f"begin it anew from its sources: headrace reset {query}")
    work = _Work(project, declared, spark, changes=True)
    lock = None
    try:
        with commanded(declared):
            work.require_possible()
            lock = driver_lock.take(project, declared, rebuilds=True)
            yield work
    finally:
        if lock is not None:
            lock.release()
        work.close()


class _Work(SinkWork):
    """One command's work on the rebuild of one query."""

    def rebuild(
        self,
        approve: Callable[[RebuildReport], bool],
        *,
        since: datetime | None,
        accept_partial: bool,
        wait: bool,
        reporter: Reporter | None,
        told: Callable[[str], None],
        at: Callable[[str], None],
    ) -> RebuildResult:
        record = self._record()
        if record is not None:
            self._require_same_sink(record)
        else:
            self._bring_along(wait, told)
        if record is not None and record.phase == "swapping":
            with self._stopped(wait):
                return self._swapped(swap.swap_in(self, record, at))
        if record is not None and record.phase != "building":
            raise self._in_the_way(record)
        spark = self._streaming_session()
        record = self._begun(spark, since, accept_partial=accept_partial) if record is None else record
        for note in record.notes:
            told(note)
        shadow.make(self.project, self.query, record)
        at("begun")
        former = QueryLayout(self.project.storage, self.query.name, record.former)
        begins = datetime.fromisoformat(record.since) if record.since else None
        sources = history.sources_beside(self.project, self.query, former, begins, spark)
        beside = shadow.shadow(self.project, self.query, sources=sources)
        if not catch_up(beside, self.query, spark, reporter):
            return self._result("stopped", record.former)
        at("caught-up")
        report = self._report(beside, record, spark)
        record = replace(record, report=report.as_dict()).enter(self.project.storage, self.query.name)
        at("compared")
        self._require_right(report)
        if not approve(report):
            return replace(self._result("compared", record.former), report=report)
        with self._stopped(wait):
            # What came while the query was still running.
            made = Checkpoint(shadow.layout_beside(self.project, self.query, record).checkpoint)
            verified = made.last_committed
            if not catch_up(beside, self.query, spark, reporter):
                return self._result("stopped", record.former)
            if made.last_committed != verified:
                report = self._report(beside, record, spark)
                record = replace(record, report=report.as_dict()).enter(self.project.storage, self.query.name)
                self._require_right(report)
            return replace(self._swapped(swap.swap_in(self, record, at)), report=report)

    def abandon(self, at: Callable[[str], None]) -> RebuildResult:
        record = self._required("building", "abandoning", "swapping")
        if record.phase == "swapping":
            with self._stopped(False):
                record = swap.swap_out(self, record, at)
        record = record.at_phase("abandoning").enter(self.project.storage, self.query.name)
        at("recorded-abandoning")
        with self.named():
            rebuilt = self.context(shadow.layout_beside(self.project, self.query, record))
            self.query.sink.drop_beside(replace(rebuilt, rebuilds=True), self.session)
        at("dropped")
        shadow.remove(self.project, self.query)
        at("removed")
        if (file := history_file(self.project.storage)).exists():
            with suppress(HeadraceError), History.open(file) as known:
                known.forget(self.query.name, record.generation)
        forget(self.project.storage, self.query.name)
        return self._result("abandoned", record.former)

    def roll_back(self, at: Callable[[str], None]) -> RebuildResult:
        record = self._required("swapped", "rolling-back")
        self._require_newest(record)
        with self._stopped(False):
            swap.swap_out(self, record, at)
        return self._result("rolled-back", record.former)

    def discard(self) -> RebuildResult:
        record = self._required("swapped", "discarding")
        with self._stopped(False):
            record = record.at_phase("discarding").enter(self.project.storage, self.query.name)
            former = QueryLayout(self.project.storage, self.query.name, record.former)
            with self.named():
                self.query.sink.discard(self.context(former), self.session)
            with writing_to(former.home):
                if former.home.exists():
                    shutil.rmtree(former.home)
            forget(self.project.storage, self.query.name)
        return self._result("discarded", latest_generation(self.project.storage, self.query.name))

    # ------------------------------------------------------------------------------------------------- its steps

    def require_possible(self) -> None:
        """Raise CheckFailed for a query whose result cannot be exchanged."""
        if not self.query.sink.swappable:
            why = f"the sink '{self.query.sink_kind}' cannot exchange one result for another"
            raise self._refused(why, f"begin it anew: {reset_command(self.query)}; or let it write to another place")
        layout = QueryLayout(
            self.project.storage, self.query.name, latest_generation(self.project.storage, self.query.name)
        )
        if self._record() is not None and table_before(self.project, self.query, layout) is not None:
            why = "its table is to be renamed, and what the rebuild has made has the former name"
            raise self._refused(why, f"name the table as before; or begin that anew: {self._command('--abandon')}")

    def _bring_along(self, wait: bool, told: Callable[[str], None]) -> None:
        """Let what has run have the names that are declared now, although the query means something else by now.

        A start would do it, and would be refused for the change.
        """
        if any(waiting_renames(self.project, self.query)):
            with self._stopped(wait):
                for said in brought_along(self.project, self.query, self._streaming_session(), anew=True):
                    told(said.what)

    def _require_right(self, report: RebuildReport) -> None:
        """Raise CheckFailed if the rebuilt result is wrong."""
        if report.verdict == "mismatch":
            what = f"the rebuilt result of query '{self.query.name}' is not what its sources give: {report.sentence}"
            fix = (
                f"look at it: headrace rebuild {self.query.name} --status; and give it up: {self._command('--abandon')}"
            )
            raise CheckFailed(Finding(code="HR575", what=what, fix=fix, where=self.query.where))

    def _begun(self, spark: SparkSession, since: datetime | None, *, accept_partial: bool) -> RebuildRecord:
        """The record of a rebuild that begins; raises where there is nothing to rebuild, or not from all of it."""
        number = latest_generation(self.project.storage, self.query.name)
        former = QueryLayout(self.project.storage, self.query.name, number)
        require_whole(former)
        if Checkpoint(former.checkpoint).last_batch is None:
            raise self._refused("it has never run", f"run it: headrace run {self.query.name}")
        if elsewhere := former_location(self.project, self.query, former):
            fix = f"name the former sink again, or begin it anew: {reset_command(self.query)}"
            raise self._refused(f"its batches were written to {elsewhere}, which is not its sink any more", fix)
        live = [each.name for each in self.project.sources_of(self.query) if each.connector.facts.ephemeral]
        if live:
            why = f"its source '{live[0]}' gives only what comes while it runs"
            raise self._refused(why, f"begin it anew: {reset_command(self.query)}")
        if since is not None:
            return self._begun_at(since, number, spark)
        missing = list(history.gone(self.project, self.query, former, spark))
        if missing and not accept_partial:
            kept = "the former rows stay set aside after the swap, from where they can be copied, until --discard"
            raise CheckFailed(
                [
                    Finding(
                        code="HR574",
                        what=f"the result of query '{self.query.name}' cannot be rebuilt as a whole: {each}",
                        fix=f"put it back; or take what is there: {self._command('--accept-partial')}; {kept}",
                        where=self.query.where,
                    )
                    for each in missing
                ]
            )
        notes = [f"the new result will not have all of the former one: {each}" for each in missing]
        notes += self._readers()
        (judgement,) = plan(self.project, [self.query.name], spark=spark)
        if judgement.verdict == "same" and not judgement.notes:
            notes.append("the query is what ran, so that its result is computed once more as it was")
        return RebuildRecord.begun(number, tuple(notes)).enter(self.project.storage, self.query.name)

    def _begun_at(self, since: datetime, number: int, spark: SparkSession) -> RebuildRecord:
        """The record of a rebuild that reads what came from a time on."""
        if unable := history.timeless(self.project, self.query, since, spark):
            why = f"its source '{unable[0]}' cannot be read from a time on"
            raise self._refused(why, f"let it be read from the beginning: {self._command()}")
        text = since.isoformat()
        note = f"the new result has only what came from {text} on"
        record = RebuildRecord.begun(number, (note, *self._readers()), since=text)
        return record.enter(self.project.storage, self.query.name)

    def _readers(self) -> Iterator[str]:
        for name in readers(self.project, self.query):
            yield f"query '{name}' reads the result, and would get the new one beside the former; rebuild it as well"

    def _report(self, beside: Project, record: RebuildRecord, spark: SparkSession) -> RebuildReport:
        former = QueryLayout(self.project.storage, self.query.name, record.former)
        after = replace(self.context(shadow.layout_beside(self.project, self.query, record)), rebuilds=True)
        return report_on(beside, self.query, self.context(former), after, spark)

    def _streaming_session(self) -> SparkSession:
        from headrace.build.project_session import session

        if self.spark is None:
            self.spark, self.own_session = session(self.project), True
        return self.spark

    @contextmanager
    def _stopped(self, wait: bool) -> Iterator[None]:
        """Hold the right to run the query, so that nobody else does."""
        lock = self._lock(wait)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def _lock(self, wait: bool) -> DriverLock | None:
        while True:
            try:
                lock = driver_lock.take(self.project, self.query)
                if lock is None:
                    require_stopped(self.project, self.query, code="HR553", fix=_STOP)
                return lock
            except CheckFailed as error:
                if not wait:
                    error.findings = tuple(replace(each, fix=_STOP) for each in error.findings)
                    raise
            time.sleep(_LOOK_SECONDS)

    # ---------------------------------------------------------------------------------------------- what is told

    def _record(self) -> RebuildRecord | None:
        return RebuildRecord.of(self.project.storage, self.query.name)

    def _required(self, *phases: Phase) -> RebuildRecord:
        record = self._record()
        if record is None:
            what = f"there is no rebuild of query '{self.query.name}'"
            raise CheckFailed(Finding(code="HR576", what=what, fix="nothing is to be done", where=self.query.where))
        if record.phase not in phases:
            raise self._in_the_way(record)
        self._require_same_sink(record)
        return record

    def _require_same_sink(self, record: RebuildRecord) -> None:
        """Raise CheckFailed if the results of the rebuild lie where the sink writes no more."""
        former = QueryLayout(self.project.storage, self.query.name, record.former)
        if elsewhere := former_location(self.project, self.query, former):
            why = f"its sink was {elsewhere} when the rebuild began, and is another one now"
            raise self._refused(why, "name the former sink again")

    def _require_newest(self, record: RebuildRecord) -> None:
        newest = latest_generation(self.project.storage, self.query.name)
        if newest > record.generation:
            why = f"it was reset since, and is generation {newest} now"
            fix = f"take that back first: headrace reset {self.query.name} --undo"
            raise self._refused(
                why, f"{fix}; or delete the former one: {self._command('--discard')}", done="rolled back"
            )

    def _in_the_way(self, record: RebuildRecord) -> CheckFailed:
        whose, number = f"the rebuild of query '{self.query.name}'", record.former
        said: dict[Phase, tuple[str, str]] = {
            "building": (
                f"{whose} was not swapped in",
                f"{self._command()}; or give it up: {self._command('--abandon')}",
            ),
            "swapping": (f"the swap of {whose} was cut off", f"end it: {self._command('--yes')}"),
            "swapped": (
                f"{whose} is done, and generation {number} is kept",
                f"delete that: {self._command('--discard')}; or bring it back: {self._command('--roll-back')}",
            ),
            "rolling-back": (f"the roll-back of {whose} was cut off", f"end it: {self._command('--roll-back')}"),
            "abandoning": (f"{whose} was being abandoned", f"end that: {self._command('--abandon')}"),
            "discarding": (f"generation {number} is being discarded", f"end that: {self._command('--discard')}"),
        }
        what, fix = said[record.phase]
        return CheckFailed(Finding(code="HR571", what=what, fix=fix, where=self.query.where))

    def _refused(self, why: str, fix: str, *, done: str = "rebuilt") -> CheckFailed:
        what = f"query '{self.query.name}' cannot be {done}: {why}"
        return CheckFailed(Finding(code="HR570", what=what, fix=fix, where=self.query.where))

    def _command(self, option: str = "") -> str:
        return f"headrace rebuild {self.query.name} {option}".rstrip()

    def _swapped(self, record: RebuildRecord) -> RebuildResult:
        return replace(self._result("swapped", record.generation), kept=record.former)

    def _result(self, done: Done, generation: int) -> RebuildResult:
        return RebuildResult(query=self.query.name, done=done, generation=generation)
