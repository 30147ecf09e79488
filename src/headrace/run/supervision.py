"""The queries of a run started, watched and brought to their ends, in one thread."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.build.catalog import topological_order
from headrace.build.tables import Tables
from headrace.checkpoint.archive import Archive
from headrace.errors import Finding, HeadraceError
from headrace.model import Project, Query, Trigger
from headrace.model.layout import QueryLayout
from headrace.operate.board import Board
from headrace.operate.orders import Order, Orders
from headrace.run import driver_lock
from headrace.run.account import Account
from headrace.run.attempt import Attempt
from headrace.run.fresh_tables import FreshTables
from headrace.run.holding import Holding
from headrace.run.home import layout_of
from headrace.run.lag import left_out
from headrace.run.notes import Notes
from headrace.run.order_desk import OrderDesk
from headrace.run.outcomes import Outcomes, hangs, superseded
from headrace.run.quarantine import Quarantine
from headrace.run.query_run import QueryRun
from headrace.run.rename_record import kept_in
from headrace.run.result import Reporter, RunResult
from headrace.run.running import Reached, Running
from headrace.run.source_health import SourceHealth
from headrace.run.starts import Begun, Start, Starts, bring_up
from headrace.run.stop import StopRequest
from headrace.run.stopping import Stopping, last_committed
from headrace.run.vitals import Vitals
from headrace.run.watching import Watching
from headrace.spark.listener import Listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Versions: TypeAlias = Mapping[str, int] | None


class Supervision:
    """One run: `run` starts its queries one after another, and watches them to their ends.

    owns_process: what hangs when it is to stop now is left behind, as the process ends with it; `left_behind` says so.
    """

    def __init__(
        self,
        project: Project,
        spark: SparkSession,
        reporter: Reporter,
        request: StopRequest,
        reached: Reached | None,
        *,
        board: Board | None = None,
        orders: Orders | None = None,
        owns_process: bool = False,
    ) -> None:
        self.owns_process, self.left_behind = owns_process, False
        self.project = project
        self.spark = spark
        self.reporter = reporter
        self.request = request
        self.reached = reached
        self.start: Start | None = None
        self.board = board or Board()
        self.said: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        self.notes = Notes(project, reporter)
        self.account = Account(project, spark, self.notes, reporter)
        self.vitals = Vitals(spark, self.account, self.notes)
        self.listener = Listener(spark)
        self.starts = Starts(spark, self.listener.wake)
        self.watching = Watching(self.listener, self.account.progressed)
        self.tables = FreshTables(spark, self.watching, self.account, self.notes, self._start_again)
        self.stopping = Stopping(request, self.notes, reporter)
        self.holding = Holding(self.board, self.notes, reporter)
        self.outcomes = Outcomes(project, self.notes, self.account, self.watching, self.holding, self.board, reporter)
        orders = orders or Orders()
        orders.on_order(self.listener.wake)
        self.desk = OrderDesk(
            project,
            orders,
            self.board,
            self.watching,
            self.holding,
            anew=self.outcomes.expect,
            stopped=self.outcomes.not_begun,
        )

    def run(self, queries: Sequence[Query], trigger: Trigger | None) -> RunResult:
        """Run `queries`; `trigger` overrides what they declare."""
        try:
            self.desk.line_up(topological_order(self.project, queries))
            for query in self.desk.waiting:
                self.board.post(query.name, "waiting")
            while self.desk.waiting or self.start is not None or self.watching or self.holding:
                self.desk.line_up(self.holding.due())
                if self.start is None:
                    self._start_next(trigger)
                self._step()
                if self.start is not None and self.request and self.start.attempt.give_up():
                    self._give_up(self.start)
                if self.owns_process and self.stopping.waits_no_more:
                    self._leave_behind()
                if self.start is not None and self.start.begun.done():
                    begun, self.start = self.start, None
                    self._begun(begun)
            self.watching.hear(seconds=0.0)
        finally:
            # Only what cuts a run off leaves a start here: one that waits in its sink may hang there for ever.
            if self.start is not None and self.start.attempt.give_up():
                self._give_up(self.start)
            self.starts.close()
            if self.start is not None:
                self._begun(self.start)
            for watched in self.watching:
                watched.running.handle.stop()
                self.outcomes.end(watched, "stopped", None)
            self.outcomes.release_held()
            self.desk.close()
            self.board.close()
            self.listener.close()
            self.notes.close()
        return self.outcomes.result(queries)

    def _start_next(self, trigger: Trigger | None) -> None:
        """Start the first that need not wait for others to end whose tables it reads to their ends."""
        if self.request:
            for query in self.desk.waiting:
                self.desk.take_out(query.name)
                self.outcomes.not_begun(query)
            self.outcomes.release_held()
            return
        ending = {each.query.name for each in self.watching if each.ends}
        for query in self.desk.waiting:
            wanted = trigger or query.trigger
            awaited = {writer.name for writer in self.project.writers_for(query)}
            if not wanted.ends or awaited.isdisjoint(ending):
                self.desk.take_out(query.name)
                self._start(query, wanted)
                return
            ending.add(query.name)

    def _start(self, query: Query, trigger: Trigger) -> None:
        try:
            lock = driver_lock.take(self.project, query)
        except HeadraceError as error:
            # No run of this query began, and the history continues to tell of the one that there is.
            self._failed(query, None, error.findings[0], ends=trigger.ends)
            return
        attempt = Attempt()
        layout = self._kept_in(query)
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
        self.reporter.starting(query)
        self.board.post(query.name, "starting")
        self.watching.starting = True
        self.start = Start(
            query=query,
            trigger=trigger,
            history_run=run_id,
            lock=lock,
            committed=last_committed(layout.checkpoint),
            attempt=attempt,
            begun=self.starts.submit(lambda: self._bring_up(query, None, trigger, attempt=attempt)),
        )

    def _kept_in(self, query: Query) -> QueryLayout:
        """Where the query's things lie before the start; what is wrong with a rename is reported by that."""
        with suppress(HeadraceError):
            return kept_in(self.project, query)
        return layout_of(self.project, query)

    def _give_up(self, start: Start) -> None:
        """End a start that waits for another driver's lock; nothing of it was begun, and nothing will be."""
        self.start = None
        self.watching.end_start(heard=False)
        self.starts.give_up()
        lock = start.lock
        if lock is not None:
            start.begun.add_done_callback(lambda _: lock.release())
        self.outcomes.given_up(start.query, start.history_run)

    def _begun(self, start: Start) -> None:
        """A start has come to its end."""
        query, run_id = start.query, start.history_run
        running, finishing = start.begun.result()
        if start.lock is not None:
            start.lock.release()  # What was started holds it by itself.
        self._tell_said()
        if not isinstance(running, Running):
            self.watching.end_start(heard=False)
            for finding in running[1:]:
                self.notes.tell(finding, query.name)
            self._failed(query, run_id, running[0], ends=start.trigger.ends)
            return
        watched = self._watched(start, running, finishing=finishing)
        self.watching.add(watched)
        self.outcomes.started(query)
        self.notes.record(lambda history: history.state(run_id, "running") if run_id is not None else None)
        self.notes.event("started", query.name, run_id, {"trigger": str(start.trigger)})
        restarts = self.outcomes.restarts.total.get(query.name, 0)
        self.board.post(query.name, "running", handle=running.handle, restarts=restarts, columns=running.columns)
        self.desk.started(query.name, 0 if start.committed is None else start.committed + 1)
        self.reporter.started(replace(query, trigger=start.trigger), running.layout)
        for note in running.notes:
            self.notes.tell(note)
        self.tables.keep(watched)
        committed = start.committed
        if watched.archive is not None and committed is not None:
            self.notes.guarded(query, lambda: self.account.missed(watched, committed))
        if watched.quarantine is not None:
            self.notes.guarded(watched.query, lambda: list(map(self.notes.tell, watched.quarantine.catch_up())))  # type: ignore[union-attr]
        self.watching.end_start(heard=True)

    def _watched(self, start: Start, running: Running, *, finishing: bool) -> QueryRun:
        query, layout, sources = start.query, running.layout, self.project.sources_of(start.query)
        lasting = running.scratch is None
        return QueryRun(
            running=running,
            finishing=finishing,
            trigger=start.trigger,
            history_run=start.history_run,
            committed_before=start.committed,
            archive=Archive(layout.archive) if lasting else None,
            quarantine=Quarantine(layout=layout, sources=sources, spark=self.spark) if lasting else None,
            source_health=SourceHealth(
                sources, self.spark, (lambda: left_out(self.project, query, layout)) if lasting else tuple
            ),
        )

    def _bring_up(
        self,
        query: Query,
        tables: Tables | None,
        trigger: Trigger,
        versions: Versions = None,
        attempt: Attempt | None = None,
    ) -> Begun:
        return bring_up(
            self.project,
            query,
            self.spark,
            tables,
            trigger,
            versions=versions,
            reached=self.reached,
            tell=self.said.put,
            attempt=attempt,
        )

    def _failed(
        self, query: Query, run_id: int | None, finding: Finding, *, ends: bool, ran_seconds: float = 0.0
    ) -> None:
        self.outcomes.failed(query, run_id, finding, ends=ends, stopping=bool(self.request), ran_seconds=ran_seconds)
        self.desk.not_started(query.name, self.project.redacted_finding(finding))

    def _step(self) -> None:
        self.watching.hear()
        self.board.beat({each.query.name: each.due_at for each in self.watching if not (each.ends or each.asked)})
        self.desk.take(self.start.query.name if self.start is not None else None)
        self._tell_said()
        if self.request:
            self.stopping.step(self.watching)
        for watched in self.watching:
            if watched.order is not None and not self.request:
                self.stopping.one(watched)
            self.account.tell_news(watched)
            if watched.stop_gracefully.step() if watched.stop_gracefully else not watched.running.handle.isActive:
                self._ended(watched)
                continue
            self.tables.look(watched)
            if watched.refresher is not None:
                self.board.refreshed_at[watched.query.name] = watched.refresher.refreshed_at
            for health in watched.source_health.new(begun=bool(watched.batches)):
                self.notes.tell(health, watched.query.name)
                self.account.warned(watched, [health])
        self.account.beat((*self.watching, *self.holding, *((self.start,) if self.start else ())))
        self.account.look_inside(self.watching)
        self.vitals.look(self.watching)
        if self.vitals.forgotten is not None and not self.request.now:
            # No batch comes to its end without an executor, and no start.
            self.outcomes.lost = self.vitals.forgotten
            self.request.ask_for(now=True)

    def _ended(self, watched: QueryRun) -> None:
        """A query has ended: for good, or to continue over other versions of its tables."""
        self.watching.hear_out(watched)
        finding = watched.running.failure()
        if self.outcomes.lost is not None and (watched.asked or finding is not None):
            self.outcomes.end(watched, "failed", self.outcomes.lost)
            return
        if finding is not None and finding.code == "HR542" and self._has_successor(watched):
            finding = superseded(watched.query)
        if finding is None and not watched.asked and (watched.stop_gracefully or watched.finishing):
            finding = superseded(watched.query) if self._has_successor(watched) else self.tables.resume(watched)
            if finding is None:
                return
        order = None if self.request else watched.order
        if finding is None and order is not None and order.verb != "stop":
            self._put_off(watched, order)
        elif finding is not None and order is None and not watched.asked:
            self.outcomes.close(watched)
            ran_seconds = time.monotonic() - watched.began
            self._failed(watched.query, watched.history_run, finding, ends=watched.ends, ran_seconds=ran_seconds)
        else:
            self.outcomes.end(watched, "failed" if finding else "stopped" if watched.asked else "finished", finding)

    def _leave_behind(self) -> None:
        """Of a run that is to stop now, what hangs is broken off by the end of the process."""
        self.left_behind = self.left_behind or bool(self.watching) or self.start is not None
        for watched in self.watching:
            if self.outcomes.lost is None:
                self.notes.tell(hangs(watched.query, "batch"))
            self.outcomes.end(watched, "failed" if self.outcomes.lost else "stopped", self.outcomes.lost)
        if self.start is not None:
            self.notes.tell(hangs(self.start.query, "start"))
            self._give_up(self.start)

    def _put_off(self, watched: QueryRun, order: Order) -> None:
        """A query has stopped because it is to be paused, or to start again."""
        self.outcomes.close(watched)
        run_id = watched.history_run
        if order.verb == "pause":
            self.holding.pause(watched.query, run_id, order)
            return
        self.notes.record(lambda history: history.end_run(run_id, "stopped") if run_id is not None else None)
        self.desk.begin_again(watched.query, order)

    def _start_again(self, watched: QueryRun, versions: Versions) -> Begun:
        return self._bring_up(watched.query, watched.running.tables, watched.trigger, versions)

    def _has_successor(self, watched: QueryRun) -> bool:
        """Whether a newer driver has started the query, as the history tells."""
        newest = self.notes.record(lambda history: history.newest_run(watched.query.name))
        return watched.history_run is not None and newest is not None and newest > watched.history_run

    def _tell_said(self) -> None:
        """Tell what a start has to say, which continues in another thread."""
        while not self.said.empty():
            self.notes.tell(self.said.get())
