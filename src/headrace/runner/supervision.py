"""The queries of a run started, watched and brought to their ends, in one thread."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from headrace.checkpoint.archive import Archive
from headrace.contract import Observer, QueryStart
from headrace.control.board import LiveStart, Order, Orders, RunResult
from headrace.errors import Fenced, HeadraceError, QueryFailed
from headrace.frames.plan_builder import topological_order
from headrace.frames.tables import Tables
from headrace.generations import driver_lock
from headrace.generations.driver_lock import DriverLock
from headrace.generations.register import layout_of
from headrace.history.lag import find_left_out
from headrace.model import Once, Project, Query, Trigger
from headrace.registry import known_failures
from headrace.runner.batch_records import Account, Notes
from headrace.runner.deploy import Deployer
from headrace.runner.fresh_tables import FreshTables
from headrace.runner.late_output import LateOutput, WriteLate
from headrace.runner.loaded_files import LoadedFiles
from headrace.runner.query_run import TAKE_SECONDS, QueryRun, Watching
from headrace.runner.source_health import QuarantineFiles, SourceHealth
from headrace.runner.states import Outcomes, States, hangs, newer_driver_fault
from headrace.runner.stop import OrderDesk, Stopping, StopRequest
from headrace.runner.vitals import Vitals
from headrace.spark.jvm.session_conf import in_thread
from headrace.spark.jvm.settings import default_partitions
from headrace.spark.messages.failures import finding_of_message
from headrace.spark.stream.foreach_batch import Halt
from headrace.spark.stream.listener import Listener
from headrace.starter.plan import find_outside_change
from headrace.starter.request import Attempt, Reached, Request
from headrace.starter.running import Begun, Running, last_committed
from headrace.starter.start import start_query
from headrace.user_code import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of its start a query spends a part in waiting for others: its sources, its sink.
LEAST_STARTS = 2
Versions: TypeAlias = Mapping[str, int] | None


class Supervision:
    """One run: `run` starts its queries, several at once, and watches them to their ends.

    owns_process: what hangs when it is to stop now is left behind, as the process ends with it; `left_behind` says so.
    write_late: by which late rows are kept, where queries ask for that. only: the queries that it is bound to, whatever
    a deploy brings; None: all of the project. files: those of the project, as they were when it was read.
    """

    def __init__(
        self,
        project: Project,
        spark: SparkSession,
        reporter: Observer,
        request: StopRequest,
        reached: Reached | None,
        *,
        orders: Orders,
        owns_process: bool,
        write_late: WriteLate | None,
        only: Collection[str] | None,
        files: LoadedFiles,
    ) -> None:
        self.owns_process, self.left_behind = owns_process, False
        self.spark = spark
        self.reporter = reporter
        self.request = request
        self.reached = reached
        self.write_late = write_late
        self.starts: list[StartingQuery] = []
        self.board = request.board
        self.messages: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.notes = Notes(project, reporter)
        self.states = States(project, self.board, self.notes, reporter)
        self.account = Account(project, spark, self.notes, reporter)
        self.vitals = Vitals(spark, self.account, self.notes)
        self.listener = Listener(spark)
        self.watching = Watching(self.listener, self.account.progressed, self.states.worked)
        self.tables = FreshTables(spark, self.watching, self.account, self.notes, self._start_again)
        self.stopping = Stopping(spark, request, self.states, reporter)
        self.outcomes = Outcomes(project, self.notes, self.account, self.watching, self.states, self.tables)
        for order in request.held:
            orders.give(order)
        orders.on_order(self.listener.wake)
        self.deployer = Deployer(
            project,
            spark,
            self.states,
            orders,
            self.notes,
            files=files,
            queries=only,
            request=request,
            report=self.messages.put,
        )
        self.desk = OrderDesk(
            orders,
            self.watching,
            self.states,
            stopped=self.outcomes.give_up,
            edited=lambda: self.deployer.files.note(),
            deploy=self._begin_deploy,
        )

    def run(self, queries: Sequence[Query], trigger: Trigger | None) -> RunResult:
        """Run `queries`; `trigger` overrides what they declare."""
        try:
            self.states.add(self.project, topological_order(self.project, queries))
            self.desk.take()
            while not self.states.all_ended:
                self._start_more(trigger)
                self._step()
                for start in [start for start in self.starts if self.request and start.attempt.give_up()]:
                    self._give_up(start)
                if self.owns_process and self.stopping.waits_no_more:
                    self._leave_behind()
                for start in [start for start in self.starts if start.begun.done()]:
                    self._take_started(start)
            self.watching.take_events(seconds=0.0)
        finally:
            # Only what cuts a run off leaves a start here: one that waits in its sink may hang there for ever.
            for start in list(self.starts):
                (self._give_up if start.attempt.give_up() else self._take_started)(start)
            for watched in self.watching:
                watched.running.handle.stop()
                self.outcomes.end(watched, "stopped", None)
            if not self.left_behind:
                self.stopping.settle()
            self.outcomes.end_held()
            self.desk.close()
            self.board.close()
            self.listener.close()
            self.notes.close()
        return self.outcomes.result(queries)

    def _start_more(self, trigger: Trigger | None) -> None:
        """Start all that wait for no other, as many at once as there are cores; those that wait in a sink do not count.

        A query waits for the start of those whose tables it reads, and if it reads these to their ends, for theirs; a
        renamed one for the end of what runs under its former name.
        """
        if self.request:
            self.outcomes.end_held()
            return
        awaited = {start.query.name for start in self.starts}
        ending = {watched.query.name for watched in self.watching if watched.ends}
        for query in self.states.to_start:
            wanted = trigger or query.trigger
            writers = {writer.name for writer in self.project.writers_for(query)}
            former = filter(None, map(self.states.find, query.renamed_from))
            at_work = sum(not start.attempt.makes_ready for start in self.starts)
            if at_work >= max(LEAST_STARTS, default_partitions()) or self.request:
                return
            is_held = bool(wanted.ends and writers & ending) or any(not one.state.has_ended for one in former)
            if writers.isdisjoint(awaited) and not is_held:
                self._start(query, wanted)
            awaited.add(query.name)

    def _start(self, query: Query, trigger: Trigger) -> None:
        project = self.states[query.name].project
        try:
            lock = driver_lock.take(project, query)
        except HeadraceError as error:
            # No run of this query began, and the history continues to show the one that there is.
            self.states[query.name].run = None
            self._handle_failure(query, error, ends=trigger.ends)
            return
        attempt = Attempt()
        layout = layout_of(project, query)
        run_id = self.notes.record(
            lambda history: history.begin_run(
                query.name,
                pid=os.getpid(),
                mode=query.mode,
                trigger=str(trigger),
                sink=query.sink_kind,
                generation=layout.generation,
            )
        )
        self.reporter.starting(query.name)
        self.states.start(query.name, run_id)
        self.watching.starting += 1
        self.starts.append(
            StartingQuery(
                query=query,
                trigger=trigger,
                history_run=run_id,
                lock=lock,
                committed=last_committed(layout.checkpoint),
                attempt=attempt,
                begun=in_thread(
                    self.spark,
                    lambda: self._start_attempt(project, query, None, trigger, attempt=attempt),
                    self.listener.wake,
                    name="headrace-start",
                ),
            )
        )

    def _give_up(self, start: StartingQuery) -> None:
        """End a start that waits for another driver's lock; nothing of it was begun, and nothing will be."""
        self.starts.remove(start)
        self.watching.end_start()
        lock = start.lock
        if lock is not None:
            start.begun.add_done_callback(lambda _: lock.release())
        self.outcomes.give_up(start.query)

    def _take_started(self, start: StartingQuery) -> None:
        """A start has come to its end."""
        query, run_id = start.query, start.history_run
        self.starts.remove(start)
        running, finishing = start.begun.result()
        if start.lock is not None:
            start.lock.release()  # What was started holds it by itself.
        self._flush_messages()
        if not isinstance(running, Running):
            self.watching.end_start()
            for finding in running.findings[1:]:
                self.notes.report(finding, query.name)
            self._handle_failure(query, running, ends=start.trigger.ends)
            return
        watched = self._watch(start, running, finishing=finishing)
        if watched.archive is not None:
            self.notes.guard(query, lambda: self.notes.take_former_names(running.project, query))
        self.watching.add(watched)
        self.states[query.name].has_run, self.states[query.name].code = True, running.code
        page = self.spark.sparkContext.uiWebUrl
        detail = {"trigger": str(start.trigger), **({"spark_page": page} if page else {})}
        self.notes.event("started", query.name, run_id, detail)
        self.states.change(query.name, "running", LiveStart(handle=running.handle, columns=running.columns))
        self.desk.started(query.name, 0 if start.committed is None else start.committed + 1)
        self.reporter.started(self._describe_start(query, start.trigger, running))
        for note in running.notes:
            self.notes.report(note)
        self.tables.keep(watched)
        committed = start.committed
        if watched.archive is not None and committed is not None:
            self.notes.guard(query, lambda: self.account.record_missed(watched, committed))
        if watched.quarantine is not None:
            self.notes.guard(watched.query, lambda: list(map(self.notes.report, watched.quarantine.catch_up())))  # type: ignore[union-attr]
        self.watching.end_start()

    def _describe_start(self, query: Query, trigger: Trigger, running: Running) -> QueryStart:
        return QueryStart(
            query=query.name,
            run_id=str(running.handle.runId),
            generation=running.layout.generation,
            trigger=str(trigger),
            mode=query.mode,
            sink=query.sink_kind,
            checkpoint=running.layout.checkpoint,
            description=query.description,
            reads={source.name: source.connector.identity() for source in running.project.sources_of(query)},
            writes=query.sink.identity(),
            columns=running.columns,
        )

    def _watch(self, start: StartingQuery, running: Running, *, finishing: bool) -> QueryRun:
        project, query, layout = running.project, start.query, running.layout
        sources = project.sources_of(query)
        lasting, write = running.scratch is None, self.write_late if query.late else None
        return QueryRun(
            running=running,
            finishing=finishing,
            trigger=start.trigger,
            history_run=start.history_run,
            committed_before=start.committed,
            archive=Archive(layout.archive) if lasting else None,
            quarantine=QuarantineFiles(layout=layout, sources=sources, names=running.names, spark=self.spark)
            if lasting
            else None,
            late=LateOutput(
                project=project,
                query=query,
                layout=layout,
                spark=self.spark,
                write=write,
                hurries=lambda: self.request.now,
            )
            if write is not None and lasting
            else None,
            source_health=SourceHealth(
                sources,
                self.spark,
                (lambda: find_left_out(project, query, layout)) if lasting else tuple,
                (lambda: find_outside_change(project, query, layout, self.spark)) if lasting else None,
            ),
        )

    def _start_attempt(
        self,
        project: Project,
        query: Query,
        tables: Tables | None,
        trigger: Trigger,
        versions: Versions = None,
        attempt: Attempt | None = None,
    ) -> Begun:
        request = Request(
            project=project,
            query=replace(query, trigger=trigger),
            spark=self.spark,
            versions=versions,
            reached=self.reached,
            report=lambda finding: self.messages.put(partial(self.notes.report, finding)),
            preparing=lambda step: self.messages.put(partial(self._prepare, step, query.name)),
            attempt=attempt or Attempt(),
        )
        begun, finishing = _start_or_finish(request, tables)
        return (replace(begun, query=query) if isinstance(begun, Running) else begun), finishing

    def _prepare(self, step: str, query: str) -> None:
        """Say which step of a start begins."""
        self.reporter.preparing(step, query)
        self.states.begin_step(query, step)

    @property
    def project(self) -> Project:
        """The newest that was deployed, or the one that the run began with."""
        return self.deployer.project

    def _begin_deploy(self, order: Order) -> bool:
        is_planning = any(not start.attempt.makes_ready for start in self.starts)
        return not is_planning and not self.request and self.deployer.begin(order)

    def _handle_failure(self, query: Query, error: HeadraceError, *, ends: bool, ran_seconds: float = 0.0) -> None:
        if not (self.request or isinstance(error, Fenced)) and self.states.fall_back(query.name, error.findings[0]):
            return
        self.outcomes.end_failed(query, error, ends=ends, stopping=bool(self.request), ran_seconds=ran_seconds)
        self.desk.not_started(query.name, self.project.redacted_finding(error.findings[0]))
        if self.project.target.operations.exit_on_failure or isinstance(error, Fenced):
            self.request.ask_for(now=False)

    def _step(self) -> None:
        self.watching.take_events(most_seconds=TAKE_SECONDS)
        self.board.beat({run.query.name: run.due_at for run in self.watching if not (run.ends or run.asked)})
        self.desk.take()
        self.board.retrying = frozenset(run.query.name for run in self.watching if run.retrying)
        self._flush_messages()
        if self.request:
            self.stopping.step(self.watching)
        for watched in self.watching:
            if watched.order is not None and not self.request:
                self.stopping.one(watched)
            self.account.report_news(watched)
            self.account.look_at_late(watched)
            self._count_retries(watched)
            self.states.wait_for(watched.query.name, *watched.waits())
            if watched.halt.step() if watched.halt else not watched.running.handle.isActive:
                self._ended(watched)
                continue
            self.tables.look(watched)
            if refreshed_at := self.tables.times_of_refresh(watched):
                self.board.refreshed_at[watched.query.name] = refreshed_at
            for health in watched.source_health.new(begun=bool(watched.batches)):
                self.notes.report(health, watched.query.name)
                self.account.note_warnings(watched, [health])
            if (cause := watched.source_health.end_cause()) is not None and watched.halt is None:
                watched.running.ended_by, watched.halt = cause, Halt(watched.running.handle, self.spark)
        self.account.beat([state.run for state in self.states if state.run is not None and not state.state.has_ended])
        self.account.look_inside(self.watching)
        self.vitals.look(self.watching)
        if self.vitals.forgotten is not None and not self.request.now:
            # No batch comes to its end without an executor, and no start.
            self.outcomes.lost = self.vitals.forgotten
            self.request.ask_for(now=True)

    def _count_retries(self, watched: QueryRun) -> None:
        new = len(watched.running.reports.retried) - watched.retries_counted
        watched.retries_counted += new
        self.board.retries[watched.query.name] = self.board.retries.get(watched.query.name, 0) + new

    def _ended(self, watched: QueryRun) -> None:
        """A query has ended: for good, or to continue over other versions of its tables."""
        self.watching.drain_events(watched)
        error = watched.running.failure()
        if error is not None and not error.findings[0].passes:
            # Its messages may be gone because the topic was created again, its files because the query was changed.
            # Where that cannot be asked, they are gone.
            with suppress(Exception):
                error = (watched.source_health.compare and watched.source_health.compare()) or error
        if self.outcomes.lost is not None and (watched.asked or error is not None):
            self.outcomes.end(watched, "failed", QueryFailed(self.outcomes.lost))
            return
        if watched.running.meets_another_driver() and self._has_successor(watched):
            error = newer_driver_fault(watched.query)
        if error is None and not watched.asked and (watched.halt or watched.finishing):
            error = newer_driver_fault(watched.query) if self._has_successor(watched) else self.tables.resume(watched)
            if error is None:
                return
        order = None if self.request else watched.order
        if error is None and order is not None and order.verb != "stop":
            self._put_off(watched, order)
        elif error is not None and order is None and not watched.asked:
            self.outcomes.close(watched)
            ran_seconds = time.monotonic() - watched.began
            self._handle_failure(watched.query, error, ends=watched.ends, ran_seconds=ran_seconds)
        else:
            self.outcomes.end(watched, "failed" if error else "stopped" if watched.asked else "finished", error)
            if isinstance(error, Fenced):
                # The newer driver runs the other queries too; an idle one would not notice.
                self.request.ask_for(now=False)

    def _leave_behind(self) -> None:
        """Of a run that is to stop now, what hangs is broken off by the end of the process."""
        self.left_behind = self.left_behind or bool(self.watching) or bool(self.starts)
        for watched in self.watching:
            watched.late = None  # The next start looks at what it has left.
            if self.outcomes.lost is None:
                self.notes.report(hangs(watched.query, "batch"))
            lost = self.outcomes.lost
            self.outcomes.end(watched, "failed" if lost else "stopped", QueryFailed(lost) if lost else None)
        for start in list(self.starts):
            self.notes.report(hangs(start.query, "start"))
            self._give_up(start)

    def _put_off(self, watched: QueryRun, order: Order) -> None:
        """A query has stopped because it is to be paused, or to start again."""
        self.outcomes.close(watched)
        if order.verb == "pause":
            self.states.pause(watched.query.name, order)
        else:
            self.states.start_again(watched.query.name, order)

    def _start_again(self, watched: QueryRun, versions: Versions) -> Begun:
        state = self.states[watched.query.name]
        return self._start_attempt(state.project, state.query, watched.running.tables, watched.trigger, versions)

    def _has_successor(self, watched: QueryRun) -> bool:
        """Whether a newer driver has started the query, as the history shows."""
        newest = self.notes.record(lambda history: history.newest_run(watched.query.name))
        return watched.history_run is not None and newest is not None and newest > watched.history_run

    def _flush_messages(self) -> None:
        """Report what a start has to say, which continues in another thread."""
        while not self.messages.empty():
            self.messages.get()()


@dataclass(frozen=True, kw_only=True)
class StartingQuery:
    """A query that is being started: the run in the history, and the last batch that earlier runs committed.

    lock: that no other process runs it, held until what was started holds it by itself.
    """

    query: Query
    trigger: Trigger
    history_run: int | None
    lock: DriverLock | None
    committed: int | None
    begun: Future[Begun]
    attempt: Attempt


def _start_or_finish(request: Request, tables: Tables | None) -> Begun:
    """Start a query; a batch that was begun with other versions of its tables is made first, and then it ends.

    tables: None at the first start of a run.
    """
    project, query, spark = request.project, request.query, request.spark
    try:
        tables = tables or Tables(project, query, layout_of(project, query), spark)
        planned = tables.planned_versions()
        finishing = planned is not None and planned != request.versions
        if finishing:
            request = replace(request, query=replace(query, trigger=Once()), versions=planned)
        with serving(query.name):
            running = start_query(request)
    except HeadraceError as error:
        return error, False
    except Exception as error:
        finding = finding_of_message(
            str(error) or type(error).__name__,
            subject=f"query '{query.name}'",
            where=query.where,
            connectors=project.connectors_of(query),
            installed=known_failures,
        )
        return QueryFailed(finding), False
    return running, finishing
