"""A run: the queries of a project started, watched and brought to their ends."""

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
from headrace.check.structure import concerning, structure
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.errors import CheckFailed, Finding, HeadraceError, ProjectError, nearest
from headrace.model import Once, Project, Query, Trigger
from headrace.model.layout import QueryLayout, latest_generation
from headrace.run import driver_lock
from headrace.run.account import Account
from headrace.run.attempt import Attempt
from headrace.run.driver_lock import require_one_free
from headrace.run.lag import left_out
from headrace.run.notes import Notes
from headrace.run.quarantine import Quarantine
from headrace.run.query_run import Watched
from headrace.run.refresh import Refresher
from headrace.run.result import Outcome, OutcomeState, Reporter, RunResult, Silent
from headrace.run.running import Reached, Running
from headrace.run.source_health import SourceHealth
from headrace.run.start import start
from headrace.run.starts import Begun, Start, Starts
from headrace.run.stop import StopRequest, end_process, stop_on_signals
from headrace.spark.failures import finding_of_message
from headrace.spark.graceful_stop import Halt
from headrace.spark.listener import Event, Listener
from headrace.storage.private import make_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.1
LAST_EVENTS_SECONDS = 3.0

Versions: TypeAlias = Mapping[str, int] | None


def run(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    trigger: Trigger | None = None,
    spark: SparkSession | None = None,
    reporter: Reporter | None = None,
    reached: Reached | None = None,
    stop: StopRequest | None = None,
) -> RunResult:
    """Run queries of `project` until they end or are asked to stop; a query that fails does not stop the others.

    `trigger` overrides what the queries declare. SIGINT or SIGTERM, or `stop.ask()`, lets running batches finish; a
    second one stops now. Raises ProjectError or CheckFailed when nothing could be started for a fault of the project.
    """
    chosen = _chosen(project, queries)
    found = concerning(project, queries) if queries else structure(project)
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        raise CheckFailed(errors)
    from headrace.build.project_session import session

    require_one_free(project, chosen)
    own = spark is None
    with suppress(OSError):  # told when the first query starts
        make_private(project.storage)
    spark = spark or session(project)
    # Not before: PySpark sets its own handler of SIGINT with the session. A process with a session of its own is ours
    # to end.
    with stop_on_signals(StopRequest() if stop is None else stop, end_now=end_process if own else None) as request:
        try:
            supervisor = _Supervisor(project, spark, reporter or Silent(), request, reached)
            return supervisor.run(chosen, trigger)
        finally:
            if own:
                spark.stop()


def _chosen(project: Project, names: Sequence[str] | None) -> tuple[Query, ...]:
    unknown = [
        Finding(code="HR606", what=f"no query is named '{name}'", fix=nearest(name, project.queries))
        for name in names or ()
        if name not in project.queries
    ]
    if unknown:
        raise ProjectError(unknown)
    chosen = tuple(project.queries[name] for name in names) if names else tuple(project.queries.values())
    if not chosen:
        raise ProjectError(
            Finding(
                code="HR605",
                what=f"the project '{project.name}' declares no query, so there is nothing to run",
                fix="declare one in headrace.yml or with @hr.query in a Python file, or begin with: headrace init NAME",
                where=project.target.where,
            )
        )
    return chosen


class _Supervisor:
    def __init__(
        self, project: Project, spark: SparkSession, reporter: Reporter, request: StopRequest, reached: Reached | None
    ) -> None:
        self.project = project
        self.spark = spark
        self.reporter = reporter
        self.request = request
        self.reached = reached
        self.outcomes: dict[str, Outcome] = {}
        self.watched: dict[str, Watched] = {}
        self.former: dict[str, Watched] = {}
        self.start: Start | None = None
        self.early: list[Event] = []
        self.said: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        self.notes = Notes(project, reporter)
        self.account = Account(project, spark, self.notes, reporter)
        self.told_stop: bool | None = None

    def run(self, queries: Sequence[Query], trigger: Trigger | None) -> RunResult:
        listener = Listener(self.spark)
        starts = Starts(self.spark, listener.wake)
        try:
            waiting = topological_order(self.project, queries)
            while waiting or self.start is not None or self.watched:
                if self.start is None:
                    waiting = self._start_next(waiting, trigger, starts)
                if self.start is not None or self.watched:
                    self._step(listener)
                if self.start is not None and self.request and self.start.attempt.give_up():
                    self._give_up(self.start, starts)
                if self.start is not None and self.start.begun.done():
                    begun, self.start = self.start, None
                    self._begun(begun)
            self._take_events(listener, seconds=0.0)
        finally:
            starts.close()
            if self.start is not None:
                self._begun(self.start)
            for watched in list(self.watched.values()):
                watched.running.handle.stop()
                self._end(watched, "stopped", None)
            listener.close()
            self.notes.close()
        order = [query.name for query in queries if query.name in self.outcomes]
        return RunResult(outcomes=tuple(self.outcomes[name] for name in order))

    # ------------------------------------------------------------------------------------------ start and end

    def _start_next(self, waiting: Sequence[Query], trigger: Trigger | None, starts: Starts) -> tuple[Query, ...]:
        """Start the first that need not wait for others to end whose tables it reads to their ends."""
        if self.request:
            return ()
        ending = {each.query.name for each in self.watched.values() if each.ends}
        for at, query in enumerate(waiting):
            wanted = trigger or query.trigger
            awaited = {writer.name for writer in self.project.writers_for(query)}
            if not wanted.ends or awaited.isdisjoint(ending):
                self._start(query, wanted, starts)
                return (*waiting[:at], *waiting[at + 1 :])
            ending.add(query.name)
        return tuple(waiting)

    def _start(self, query: Query, trigger: Trigger, starts: Starts) -> None:
        try:
            lock = driver_lock.take(self.project, query)
        except HeadraceError as fault:
            # No run of this query began, and the history continues to tell of the one that there is.
            self._finish(query, None, Outcome(query=query.name, state="failed", finding=fault.findings[0]))
            return
        attempt = Attempt()
        layout = QueryLayout(self.project.storage, query.name, latest_generation(self.project.storage, query.name))
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
        self.start = Start(
            query=query,
            trigger=trigger,
            history_run=run_id,
            lock=lock,
            committed=_last_committed(layout),
            attempt=attempt,
            begun=starts.submit(
                lambda: self._started(query, Tables(self.project, query, layout, self.spark), trigger, attempt=attempt)
            ),
        )

    def _give_up(self, start: Start, starts: Starts) -> None:
        """End a start that waits for another driver's lock; nothing of it was begun, and nothing will be."""
        self.start, self.early = None, []
        starts.give_up()
        lock = start.lock
        if lock is not None:
            start.begun.add_done_callback(lambda _: lock.release())
        self._finish(start.query, start.history_run, Outcome(query=start.query.name, state="stopped"))

    def _begun(self, start: Start) -> None:
        """A start has come to its end."""
        query, run_id = start.query, start.history_run
        early, self.early = self.early, []
        running, finishing = start.begun.result()
        if start.lock is not None:
            start.lock.release()  # What was started holds it by itself.
        self._tell_said()
        if not isinstance(running, Running):
            for finding in running[1:]:
                self.notes.tell(finding)
            self._finish(query, run_id, Outcome(query=query.name, state="failed", finding=running[0]))
            return
        lasting = running.scratch is None
        watched = Watched(
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
        self.watched[str(running.handle.runId)] = watched
        self.notes.record(lambda history: history.state(run_id, "running") if run_id is not None else None)
        self.reporter.started(replace(query, trigger=start.trigger), running.layout)
        for note in running.notes:
            self.notes.tell(note)
        self._keep_fresh(watched)
        committed = start.committed
        if lasting and committed is not None:
            self.notes.guarded(query, lambda: self.account.missed(watched, committed))
        if watched.quarantine is not None:
            self.notes.guarded(watched.query, lambda: list(map(self.notes.tell, watched.quarantine.catch_up())))  # type: ignore[union-attr]
        for event in early:
            self._take(event)

    def _started(
        self,
        query: Query,
        tables: Tables,
        trigger: Trigger,
        versions: Versions = None,
        attempt: Attempt | None = None,
    ) -> Begun:
        """Start `query`; a batch that was begun with other versions of its tables is made first, and then it ends."""
        try:
            planned = tables.planned()
            finishing = planned is not None and planned != versions
            running = start(
                self.project,
                query,
                self.spark,
                trigger=Once() if finishing else trigger,
                reached=self.reached,
                versions=planned if finishing else versions,
                tell=self.said.put,
                attempt=attempt,
            )
        except HeadraceError as fault:
            return fault.findings, False
        except Exception as fault:
            return (
                finding_of_message(
                    str(fault) or type(fault).__name__,
                    subject=f"query '{query.name}'",
                    where=query.where,
                    connectors=self.project.connectors_of(query),
                ),
            ), False
        return running, finishing

    def _end(self, watched: Watched, state: OutcomeState, finding: Finding | None) -> None:
        self.account.archive(watched)
        self.notes.guarded(watched.query, lambda: self.account.untold(watched, _last_committed(watched.running.layout)))
        self.account.tell_news(watched)
        for last in watched.source_health.last():
            self.notes.tell(last)
        watched.running.clean_up()
        if watched.refresher is not None:
            watched.refresher.stop()
        self.watched.pop(str(watched.running.handle.runId), None)
        self._forget_former(watched)
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
            outcome = replace(outcome, finding=self.project.redacted_finding(outcome.finding))
        self.outcomes[query.name] = outcome
        self.notes.record(
            lambda history: history.end_run(run_id, outcome.state, outcome.finding) if run_id is not None else None
        )
        self.reporter.ended(outcome)

    # -------------------------------------------------------------------------------------------------- watch

    def _step(self, listener: Listener) -> None:
        self._take_events(listener, seconds=POLL_SECONDS)
        self._tell_said()
        if self.request:
            self._tell_stop()
            self._stop_what_may_stop()
        for watched in list(self.watched.values()):
            self.account.tell_news(watched)
            if watched.stop_gracefully.step() if watched.stop_gracefully else not watched.running.handle.isActive:
                self._hear_out(watched, listener)
                finding = watched.running.failure()
                if finding is not None and finding.code == "HR542" and self._has_successor(watched):
                    finding = _superseded(watched.query)
                if finding is None and not watched.asked and (watched.stop_gracefully or watched.finishing):
                    self._go_on(watched)
                    continue
                ends: OutcomeState = "stopped" if watched.asked else "finished"
                self._end(watched, "failed" if finding else ends, finding)
                continue
            self._refresh(watched)
            for health in watched.source_health.new(begun=bool(watched.batches)):
                self.notes.tell(health)
                self.account.warned(watched, [health])
        self.account.beat((*self.watched.values(), *((self.start,) if self.start else ())))
        self.account.look_inside(self.watched.values())

    # ----------------------------------------------------------------------------------- tables recomputed

    def _keep_fresh(self, watched: Watched) -> None:
        running = watched.running
        if running.tables.declared and not watched.ends and not watched.finishing:
            watched.refresher = Refresher(running.tables, running.versions, self.spark, watched.query.name)
            self.account.warned(watched, [note for note in running.notes if note.code == "HR561"])

    def _refresh(self, watched: Watched) -> None:
        """Have tables computed that are due, and begin to halt the query when one of them has changed."""
        refresher = watched.refresher
        if refresher is None or watched.asked or watched.stop_gracefully is not None or watched.finishing:
            return
        before = refresher.faults
        if not refresher.look():
            return
        for name, fault in refresher.faults.items():
            if before.get(name) != fault:
                self.notes.tell(fault)
        self.account.warned(watched, list(refresher.faults.values()))
        if refresher.versions != watched.running.versions:
            watched.stop_gracefully = Halt(watched.running.handle, self.spark)

    def _go_on(self, watched: Watched) -> None:
        """Start a halted query over the newest versions of its tables: for all others it has never stopped."""
        before = watched.running
        if self._has_successor(watched):
            self._end(watched, "failed", _superseded(watched.query))
            return
        versions = watched.refresher.versions if watched.refresher is not None else None
        running, finishing = self._started(watched.query, before.tables, watched.trigger, versions)
        if not isinstance(running, Running):
            for finding in running[1:]:
                self.notes.tell(finding)
            self._end(watched, "failed", running[0])
            return
        self.account.tell_news(watched)
        self._forget_former(watched)
        before.clean_up()
        self.former[str(before.handle.runId)] = self.watched.pop(str(before.handle.runId))
        self.watched[str(running.handle.runId)] = watched
        watched.running, watched.finishing, watched.stop_gracefully = running, finishing, None
        if finishing:
            return
        for note in running.notes:
            if note not in before.notes:
                self.notes.tell(note)
        if watched.refresher is None:
            self._keep_fresh(watched)
        for name, number in running.versions.items():
            if before.versions.get(name) != number:
                self.notes.tell(
                    Finding(
                        code="HR560",
                        what=f"table '{name}' of query '{watched.query.name}' has changed: from batch "
                        f"{running.tables.next_batch} on its version {number} counts",
                        where=running.tables.declared[name].where,
                    )
                )

    def _has_successor(self, watched: Watched) -> bool:
        """Whether a newer driver has started the query, as the history tells."""
        newest = self.notes.record(lambda history: history.newest_run(watched.query.name))
        return watched.history_run is not None and newest is not None and newest > watched.history_run

    def _forget_former(self, watched: Watched) -> None:
        self.former = {run_id: other for run_id, other in self.former.items() if other is not watched}

    def _take_events(self, listener: Listener, *, seconds: float) -> None:
        """Wait up to `seconds` for one event, then take all that are there."""
        try:
            event = listener.events.get(timeout=seconds) if seconds else listener.events.get_nowait()
            while True:
                self._take(event)
                event = listener.events.get_nowait()
        except queue.Empty:
            return

    def _hear_out(self, watched: Watched, listener: Listener) -> None:
        """Take the events of a query that has ended, the last of which tells of its end."""
        until = time.monotonic() + LAST_EVENTS_SECONDS
        while not watched.terminated and time.monotonic() < until:
            self._take_events(listener, seconds=POLL_SECONDS)
        watched.terminated = False

    def _take(self, event: Event) -> None:
        watched = self.watched.get(event.run_id) or self.former.get(event.run_id)
        if watched is None and self.start is not None:
            self.early.append(event)  # It may be of the query that is being started.
        if watched is not None and event.kind == "terminated" and event.run_id == str(watched.running.handle.runId):
            watched.terminated = True
        if watched is not None:
            watched.event_at = time.monotonic()
        if watched is None or event.kind != "progress":
            return
        self.account.progressed(watched, event.json)

    def _tell_said(self) -> None:
        """Tell what a start has to say, which continues in another thread."""
        while not self.said.empty():
            self.notes.tell(self.said.get())

    def _tell_stop(self) -> None:
        if self.told_stop != self.request.now:
            self.told_stop = self.request.now
            self.reporter.stopping(now=self.request.now)

    def _stop_what_may_stop(self) -> None:
        """Stop each query between two batches, or all of them at once when asked twice."""
        for watched in self.watched.values():
            handle = watched.running.handle
            if not watched.asked:
                watched.asked, watched.batch_when_asked = True, watched.last_batch
                self.notes.record(
                    lambda history, run_id=watched.history_run: (  # type: ignore[misc]
                        history.state(run_id, "stopping") if run_id is not None else None
                    )
                )
            if self.request.now or watched.last_batch != watched.batch_when_asked or not _busy(handle.status):
                handle.stop()


def _superseded(query: Query) -> Finding:
    """A start would fence off the newer driver."""
    return Finding(
        code="HR409",
        what=f"a newer driver runs query '{query.name}'; this one has ended",
        fix="look with headrace status which process runs it, and stop one of the two",
        where=query.where,
    )


def _last_committed(layout: QueryLayout) -> int | None:
    """The last batch of the runs before; a checkpoint that cannot be read is told of by the start."""
    try:
        return Checkpoint(layout.checkpoint).last_committed
    except (HeadraceError, OSError):
        return None


def _busy(status: dict[str, object]) -> bool:
    return bool(status.get("isTriggerActive"))
