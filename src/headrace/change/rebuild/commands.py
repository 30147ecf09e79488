"""A query rebuilt, the rebuild given up, rolled back or made final."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.change.rebuild import history, shadow, swap
from headrace.change.rebuild.beginning import begin
from headrace.change.rebuild.catching_up import catch_up
from headrace.change.rebuild.comparing import report_on
from headrace.change.rebuild.values import RebuildReport, RebuildResult
from headrace.change.rebuild.work import RebuildWork
from headrace.checkpoint import Checkpoint
from headrace.contract import Observer
from headrace.errors import CheckFailed, Finding, HeadraceError, ProjectError, nearest
from headrace.model import Project
from headrace.observe.history import History
from headrace.queries import driver_lock
from headrace.queries.blame import commanded
from headrace.queries.changes import RebuildRecord, forget
from headrace.queries.layout import QueryLayout, history_file, latest_generation
from headrace.queries.rename_record import waiting_renames
from headrace.run.rename import brought_along
from headrace.storage.durable import remove_tree
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    reporter: Observer | None = None,
    notify: Callable[[str], None] = _nobody,
    reached: Callable[[str], None] = _nobody,
) -> RebuildResult:
    """Recompute the result of `query` from its sources beside the one in use, and exchange the two.

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
            notify=notify,
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
def _work(project: Project, query: str, spark: SparkSession | None) -> Iterator[_Ways]:
    if query not in project.queries:
        fix = nearest(query, project.queries)
        raise ProjectError(Finding(code="HR091", what=f"no query is named '{query}'", fix=fix))
    declared = project.queries[query]
    work = _Ways(project, declared, spark, changes=True)
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


class _Ways(RebuildWork):
    """The four ways of a rebuild: on to its swap, given up, back, or made final."""

    def rebuild(
        self,
        approve: Callable[[RebuildReport], bool],
        *,
        since: datetime | None,
        accept_partial: bool,
        wait: bool,
        reporter: Observer | None,
        notify: Callable[[str], None],
        at: Callable[[str], None],
    ) -> RebuildResult:
        record = self.record()
        if record is not None:
            self.require_same_sink(record)
        else:
            self._bring_along(wait, notify)
        if record is not None and record.phase == "swapping":
            with self.stopped(wait):
                return self._swapped(swap.swap_in(self, record, at))
        if record is not None and record.phase != "building":
            raise self.in_the_way(record)
        spark = self.streaming_session()
        record = begin(self, spark, since, accept_partial=accept_partial) if record is None else record
        for note in record.notes:
            notify(note)
        shadow.make(self.project, self.query, record)
        at("begun")
        former = QueryLayout(self.project.storage, self.query.name, record.former)
        begins = datetime.fromisoformat(record.since) if record.since else None
        sources = history.sources_beside(self.project, self.query, former, begins, spark)
        beside = shadow.shadow(self.project, self.query, sources=sources)
        if not catch_up(beside, self.query, spark, reporter):
            return self.result("stopped", record.former)
        at("caught-up")
        report = self._report(beside, record, spark)
        record = replace(record, report=report.as_dict()).enter(self.project.storage, self.query.name)
        at("compared")
        self._require_right(report)
        if not approve(report):
            return replace(self.result("compared", record.former), report=report)
        with self.stopped(wait):
            # What came while the query was still running.
            made = Checkpoint(shadow.layout_beside(self.project, self.query, record).checkpoint)
            verified = made.last_committed
            if not catch_up(beside, self.query, spark, reporter):
                return self.result("stopped", record.former)
            if made.last_committed != verified:
                report = self._report(beside, record, spark)
                record = replace(record, report=report.as_dict()).enter(self.project.storage, self.query.name)
                self._require_right(report)
            return replace(self._swapped(swap.swap_in(self, record, at)), report=report)

    def abandon(self, at: Callable[[str], None]) -> RebuildResult:
        record = self.required("building", "abandoning", "swapping")
        if record.phase == "swapping":
            with self.stopped(False):
                record = swap.swap_out(self, record, at)
        record = record.at_phase("abandoning").enter(self.project.storage, self.query.name)
        at("recorded-abandoning")
        with self.named():
            rebuilt = self.context(shadow.layout_beside(self.project, self.query, record))
            shadow.exchange(self.query).drop_beside(replace(rebuilt, rebuilds=True), self.session)
        at("dropped")
        shadow.remove(self.project, self.query)
        at("removed")
        if (file := history_file(self.project.local_storage)).exists():
            with suppress(HeadraceError), History.open(file) as known:
                known.forget(self.query.name, record.generation)
        forget(self.project.storage, self.query.name)
        return self.result("abandoned", record.former)

    def roll_back(self, at: Callable[[str], None]) -> RebuildResult:
        record = self.required("swapped", "rolling-back")
        self.require_newest(record)
        with self.stopped(False):
            swap.swap_out(self, record, at)
        return self.result("rolled-back", record.former)

    def discard(self) -> RebuildResult:
        record = self.required("swapped", "discarding")
        with self.stopped(False):
            record = record.at_phase("discarding").enter(self.project.storage, self.query.name)
            former = QueryLayout(self.project.storage, self.query.name, record.former)
            with self.named():
                self.query.sink.reset.discard(self.context(former), self.session)
            with writing_to(former.home):
                remove_tree(former.home)
            forget(self.project.storage, self.query.name)
        return self.result("discarded", latest_generation(self.project.storage, self.query.name))

    # ------------------------------------------------------------------------------------------------- its steps

    def _bring_along(self, wait: bool, notify: Callable[[str], None]) -> None:
        """Let what has run have the names that are declared now, although the query means something else by now.

        A start would do it, and would be refused for the change.
        """
        if any(waiting_renames(self.project, self.query)):
            with self.stopped(wait):
                for said in brought_along(self.project, self.query, self.streaming_session(), anew=True):
                    notify(said.what)

    def _require_right(self, report: RebuildReport) -> None:
        """Raise CheckFailed if the rebuilt result is wrong."""
        if report.verdict == "mismatch":
            what = f"the rebuilt result of query '{self.query.name}' is not what its sources give: {report.sentence}"
            fix = (
                f"look at it: headrace rebuild {self.query.name} --status; and give it up: {self.command('--abandon')}"
            )
            raise CheckFailed(Finding(code="HR573", what=what, fix=fix, where=self.query.where))

    def _report(self, beside: Project, record: RebuildRecord, spark: SparkSession) -> RebuildReport:
        former = QueryLayout(self.project.storage, self.query.name, record.former)
        after = replace(self.context(shadow.layout_beside(self.project, self.query, record)), rebuilds=True)
        return report_on(beside, self.query, self.context(former), after, spark)

    def _swapped(self, record: RebuildRecord) -> RebuildResult:
        return replace(self.result("swapped", record.generation), kept=record.former)
