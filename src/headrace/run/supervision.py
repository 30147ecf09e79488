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
from headrace.run.naming import with_command
from headrace.run.notes import Notes
from headrace.run.order_desk import OrderDesk
from headrace.run.quarantine import Quarantine
from headrace.run.query_run import QueryRun
from headrace.run.rename_record import kept_in
from headrace.run.restarts import Restarts
from headrace.run.result import Outcome, OutcomeState, Reporter, RunResult
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
    """One run: `run` starts its queries one after another, and watches them to their ends."""

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
    ) -> None:
        self.project = project
        self.spark = spark
        self.reporter = reporter
        self.request = request
        self.reached = reached
        self.outcomes: dict[str, Outcome] = {}
        self.start: Start | None = None
        self.ran: set[str] = set()
        self.tally: dict[str, tuple[int, int]] = {}
        self.board = board or Board()
        self.restarts = Restarts()
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
        orders = orders or Orders()
        orders.on_order(self.listener.wake)
        self.desk = OrderDesk(
            project, orders, self.board, self.watching, self.holding, anew=self._anew, stopped=self._not_begun
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
                self._end(watched, "stopped", None)
            self._release_held()
            self.desk.close()
            self.board.close()
            self.listener.close()
            self.notes.close()
        return RunResult(outcomes=tuple(self.outcomes[each.name] for each in queries if each.name in self.outcomes))

    # ------------------------------------------------------------------------------------------ start and end

    def _start_next(self, trigger: Trigger | None) -> None:
        """Start the first that need not wait for others to end whose tables it reads to their ends."""
        if self.request:
            for query in self.desk.waiting:
                self.desk.take_out(query.name)
                self._not_begun(query)
            self._release_held()
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

    def _not_begun(self, query: Query) -> None:
        """A query is not started, or not again, because it was stopped before."""
        self._finish(query, None, Outcome(query=query.name, state="stopped"))

    def _anew(self, query: str) -> None:
        """A query is started by order: its failures are counted anew, and its end is not yet."""
        self.restarts.forget(query)
        self.outcomes.pop(query, None)

    def _release_held(self) -> None:
        """The run ends, and with it what is paused or waits for its restart."""
        for held in self.holding:
            self.holding.release(held.query.name)
            self._not_begun(held.query)

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
        """Where the query's things lie before the start; what is wrong with a rename is told by that."""
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
        self._finish(start.query, start.history_run, Outcome(query=start.query.name, state="stopped"))

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
        lasting = running.scratch is None
        watched = QueryRun(
            running=running,
            finishing=finishing,
            trigger=start.trigger,
            history_run=run_id,
            committed_before=start.committed,
            archive=Archive(running.layout.archive) if lasting else None,
            quarantine=Quarantine(layout=running.layout, sources=self.project.sources_of(query), spark=self.spark)
            if lasting
            else None,
            source_health=SourceHealth(
                self.project.sources_of(query),
                self.spark,
                (lambda: left_out(self.project, query, running.layout)) if lasting else tuple,
            ),
        )
        self.watching.add(watched)
        self.ran.add(query.name)
        self.notes.record(lambda history: history.state(run_id, "running") if run_id is not None else None)
        self.notes.event("started", query.name, run_id, {"trigger": str(start.trigger)})
        self.board.post(query.name, "running", handle=running.handle, restarts=self.restarts.total.get(query.name, 0))
        self.desk.started(query.name, 0 if start.committed is None else start.committed + 1)
        self.reporter.started(replace(query, trigger=start.trigger), running.layout)
        for note in running.notes:
            self.notes.tell(note)
        self.tables.keep(watched)
        committed = start.committed
        if lasting and committed is not None:
            self.notes.guarded(query, lambda: self.account.missed(watched, committed))
        if watched.quarantine is not None:
            self.notes.guarded(watched.query, lambda: list(map(self.notes.tell, watched.quarantine.catch_up())))  # type: ignore[union-attr]
        self.watching.end_start(heard=True)

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

    def _close(self, watched: QueryRun) -> None:
        """Account for all that a query has done, and watch it no more."""
        self.account.archive(watched)
        self.notes.guarded(
            watched.query, lambda: self.account.unreported(watched, last_committed(watched.running.layout.checkpoint))
        )
        self.account.tell_news(watched)
        for last in watched.source_health.last():
            self.notes.tell(last)
        watched.running.clean_up()
        if watched.refresher is not None:
            watched.refresher.stop()
        self.watching.remove(watched)
        batches, rows = self.tally.get(watched.query.name, (0, 0))
        self.tally[watched.query.name] = batches + watched.batches, rows + watched.rows

    def _end(self, watched: QueryRun, state: OutcomeState, finding: Finding | None) -> None:
        self._close(watched)
        outcome = Outcome(query=watched.query.name, state=state, finding=finding, last_batch=watched.last_batch)
        self._finish(watched.query, watched.history_run, outcome)
        if watched.order is not None:
            if finding is not None:
                watched.order.failed(finding)
            watched.order.done(f"query '{watched.query.name}' has {state}")

    def _failed(
        self, query: Query, run_id: int | None, finding: Finding, *, ends: bool, ran_seconds: float = 0.0
    ) -> None:
        """A query, or its start, has failed: it is started again later, or for good."""
        again = None
        if (query.name in self.ran or query.restart) and not self.request:
            again = self.restarts.next(query, finding, ends=ends, ran_seconds=ran_seconds)
        if again is None:
            self._finish(query, run_id, Outcome(query=query.name, state="failed", finding=finding))
        else:
            finding = self.project.redacted_finding(finding)
            self.notes.record(
                lambda history: history.end_run(run_id, "failed", finding) if run_id is not None else None
            )
            self.holding.restart_later(query, finding, again)
        self.desk.not_started(query.name, finding)

    def _finish(self, query: Query, run_id: int | None, outcome: Outcome) -> None:
        if outcome.finding is not None:
            finding = with_command(query, self.project.redacted_finding(outcome.finding))
            outcome = replace(outcome, finding=finding)
        batches, rows = self.tally.get(query.name, (0, 0))
        outcome = replace(outcome, batches=batches, rows=rows)
        self.outcomes[query.name] = outcome
        self.notes.record(
            lambda history: history.end_run(run_id, outcome.state, outcome.finding) if run_id is not None else None
        )
        detail = {"finding": outcome.finding.as_dict()} if outcome.finding else {}
        self.notes.event(outcome.state, query.name, run_id, detail)
        self.board.post(query.name, outcome.state, error=outcome.finding, handle=None)
        self.reporter.ended(outcome)

    # -------------------------------------------------------------------------------------------------- watch

    def _step(self) -> None:
        self.watching.hear()
        self.board.beat()
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

    def _ended(self, watched: QueryRun) -> None:
        """A query has ended: for good, or to continue over other versions of its tables."""
        self.watching.hear_out(watched)
        finding = watched.running.failure()
        if finding is not None and finding.code == "HR542" and self._has_successor(watched):
            finding = _superseded(watched.query)
        if finding is None and not watched.asked and (watched.stop_gracefully or watched.finishing):
            finding = _superseded(watched.query) if self._has_successor(watched) else self.tables.resume(watched)
            if finding is None:
                return
        order = None if self.request else watched.order
        if finding is None and order is not None and order.verb != "stop":
            self._put_off(watched, order)
        elif finding is not None and order is None and not watched.asked:
            self._close(watched)
            ran_seconds = time.monotonic() - watched.began
            self._failed(watched.query, watched.history_run, finding, ends=watched.ends, ran_seconds=ran_seconds)
        else:
            self._end(watched, "failed" if finding else "stopped" if watched.asked else "finished", finding)

    def _put_off(self, watched: QueryRun, order: Order) -> None:
        """A query has stopped because it is to be paused, or to start again."""
        self._close(watched)
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


def _superseded(query: Query) -> Finding:
    """A start would fence off the newer driver."""
    return Finding(
        code="HR409",
        what=f"a newer driver runs query '{query.name}'; this one has ended",
        fix="look with headrace status which process runs it, and stop one of the two",
        where=query.where,
    )
