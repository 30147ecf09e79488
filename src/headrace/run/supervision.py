"""The queries of a run started, watched and brought to their ends, in one thread."""

from __future__ import annotations

import os
import queue
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
from headrace.run import driver_lock
from headrace.run.account import Account
from headrace.run.attempt import Attempt
from headrace.run.fresh_tables import FreshTables
from headrace.run.home import layout_of
from headrace.run.lag import left_out
from headrace.run.naming import with_command
from headrace.run.notes import Notes
from headrace.run.quarantine import Quarantine
from headrace.run.query_run import QueryRun
from headrace.run.rename_record import kept_in
from headrace.run.result import Outcome, OutcomeState, Reporter, RunResult
from headrace.run.running import Reached, Running
from headrace.run.source_health import SourceHealth
from headrace.run.starts import Begun, Start, Starts, bring_up
from headrace.run.stop import StopRequest
from headrace.run.stopping import Stopping, last_committed
from headrace.run.watching import Watching
from headrace.spark.listener import Listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Versions: TypeAlias = Mapping[str, int] | None


class Supervision:
    """One run: `run` starts its queries one after another, and watches them to their ends."""

    def __init__(
        self, project: Project, spark: SparkSession, reporter: Reporter, request: StopRequest, reached: Reached | None
    ) -> None:
        self.project = project
        self.spark = spark
        self.reporter = reporter
        self.request = request
        self.reached = reached
        self.outcomes: dict[str, Outcome] = {}
        self.start: Start | None = None
        self.said: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        self.notes = Notes(project, reporter)
        self.account = Account(project, spark, self.notes, reporter)
        self.listener = Listener(spark)
        self.starts = Starts(spark, self.listener.wake)
        self.watching = Watching(self.listener, self.account.progressed)
        self.tables = FreshTables(spark, self.watching, self.account, self.notes, self._start_again)
        self.stopping = Stopping(request, self.notes, reporter)

    def run(self, queries: Sequence[Query], trigger: Trigger | None) -> RunResult:
        """Run `queries`; `trigger` overrides what they declare."""
        try:
            waiting = topological_order(self.project, queries)
            while waiting or self.start is not None or self.watching:
                if self.start is None:
                    waiting = self._start_next(waiting, trigger)
                if self.start is not None or self.watching:
                    self._step()
                if self.start is not None and self.request and self.start.attempt.give_up():
                    self._give_up(self.start)
                if self.start is not None and self.start.begun.done():
                    begun, self.start = self.start, None
                    self._begun(begun)
            self.watching.hear(seconds=0.0)
        finally:
            self.starts.close()
            if self.start is not None:
                self._begun(self.start)
            for watched in self.watching:
                watched.running.handle.stop()
                self._end(watched, "stopped", None)
            self.listener.close()
            self.notes.close()
        order = [query.name for query in queries if query.name in self.outcomes]
        return RunResult(outcomes=tuple(self.outcomes[name] for name in order))

    # ------------------------------------------------------------------------------------------ start and end

    def _start_next(self, waiting: Sequence[Query], trigger: Trigger | None) -> tuple[Query, ...]:
        """Start the first that need not wait for others to end whose tables it reads to their ends."""
        if self.request:
            for query in waiting:
                self._finish(query, None, Outcome(query=query.name, state="stopped"))
            return ()
        ending = {each.query.name for each in self.watching if each.ends}
        for at, query in enumerate(waiting):
            wanted = trigger or query.trigger
            awaited = {writer.name for writer in self.project.writers_for(query)}
            if not wanted.ends or awaited.isdisjoint(ending):
                self._start(query, wanted)
                return (*waiting[:at], *waiting[at + 1 :])
            ending.add(query.name)
        return tuple(waiting)

    def _start(self, query: Query, trigger: Trigger) -> None:
        try:
            lock = driver_lock.take(self.project, query)
        except HeadraceError as error:
            # No run of this query began, and the history continues to tell of the one that there is.
            self._finish(query, None, Outcome(query=query.name, state="failed", finding=error.findings[0]))
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
                self.notes.tell(finding)
            self._finish(query, run_id, Outcome(query=query.name, state="failed", finding=running[0]))
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
        self.notes.record(lambda history: history.state(run_id, "running") if run_id is not None else None)
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

    def _end(self, watched: QueryRun, state: OutcomeState, finding: Finding | None) -> None:
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
        outcome = Outcome(
            query=watched.query.name,
            state=state,
            finding=finding,
            batches=watched.batches,
            rows=watched.rows,
            last_batch=watched.last_batch,
        )
        self._finish(watched.query, watched.history_run, outcome)

    def _finish(self, query: Query, run_id: int | None, outcome: Outcome) -> None:
        if outcome.finding is not None:
            finding = with_command(query, self.project.redacted_finding(outcome.finding))
            outcome = replace(outcome, finding=finding)
        self.outcomes[query.name] = outcome
        self.notes.record(
            lambda history: history.end_run(run_id, outcome.state, outcome.finding) if run_id is not None else None
        )
        self.reporter.ended(outcome)

    # -------------------------------------------------------------------------------------------------- watch

    def _step(self) -> None:
        self.watching.hear()
        self._tell_said()
        if self.request:
            self.stopping.step(self.watching)
        for watched in self.watching:
            self.account.tell_news(watched)
            if watched.stop_gracefully.step() if watched.stop_gracefully else not watched.running.handle.isActive:
                self._ended(watched)
                continue
            self.tables.look(watched)
            for health in watched.source_health.new(begun=bool(watched.batches)):
                self.notes.tell(health)
                self.account.warned(watched, [health])
        self.account.beat((*self.watching, *((self.start,) if self.start else ())))
        self.account.look_inside(self.watching)

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
        self._end(watched, "failed" if finding else "stopped" if watched.asked else "finished", finding)

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
