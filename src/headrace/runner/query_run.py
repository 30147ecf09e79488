"""What the supervisor keeps of a query of a run."""

from __future__ import annotations

import math
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from headrace.checkpoint.archive import Archive
from headrace.contract import BatchRecord, BatchWork, Lag
from headrace.contract.observer import State
from headrace.control.board import Order
from headrace.errors import Finding
from headrace.history.health import NULL_TIMES, find_wrong_times, health
from headrace.history.lag import lags, read_reported_lags, total
from headrace.model import Every, Query, Trigger
from headrace.runner.late_output import LateOutput
from headrace.runner.source_health import QuarantineFiles, SourceHealth
from headrace.spark.stream.foreach_batch import Halt
from headrace.spark.stream.listener import Listener, ListenerEvent
from headrace.starter.running import Running

# What waits in the sources is looked at again after a second, or sooner where that takes a twentieth of the time.
LAG_SECONDS, LAG_SHARE = 1.0, 20
HEALTH_BATCHES = 20
# Another writer that was quicker is not an outage, nor is a source that takes some seconds.
SINK_MOMENT_SECONDS, SOURCE_MOMENT_SECONDS, USUAL_TIMES = 1.0, 10.0, 3


@dataclass(kw_only=True)
class QueryRun:
    """A running query with what the supervisor keeps of it.

    late: what keeps its late rows, if they go to a sink of their own.
    finishing: it makes one batch again, with the tables that the batch was begun with, before it continues with others.
    halt: ends it after its running batch, to continue over other versions of its tables or because somebody asked so.
    order: what somebody wants done with it. began: when it was started. work, worked_at: how far the running batch was
    when its tasks last moved, and when that was. before: the newest batch that was recorded. asking: which source Spark
    asks for what is new, since when, and when that was seen last.
    """

    running: Running
    trigger: Trigger
    history_run: int | None
    committed_before: int | None = None
    archive: Archive | None
    quarantine: QuarantineFiles | None
    late: LateOutput | None = None
    source_health: SourceHealth
    batches: int = 0
    rows: int = 0
    last_batch: int | None = None
    asked: bool = False
    order: Order | None = None
    began: float = field(default_factory=time.monotonic)
    terminated: bool = False
    lags: dict[str, Lag | None] = field(default_factory=dict)
    lag_at: float = field(default=0.0)
    event_at: float = field(default_factory=time.monotonic)
    worked_at: float = 0.0
    asking: tuple[str, float, float] = ("", 0.0, 0.0)
    work: BatchWork | None = None
    looked_at: float = 0.0
    finishing: bool = False
    halt: Halt | None = None
    recent: deque[BatchRecord] = field(default_factory=lambda: deque(maxlen=HEALTH_BATCHES))
    warnings: frozenset[tuple[str, str]] = frozenset()
    before: BatchRecord | None = None
    retries_counted: int = 0

    @property
    def query(self) -> Query:
        return self.running.query

    @property
    def ends(self) -> bool:
        return self.trigger.ends

    @property
    def moved_at(self) -> float:
        """When Spark last reported a batch or of having nothing to do, or a task of the running batch moved."""
        return max(self.event_at, self.worked_at)

    def waits(self) -> tuple[State, Finding | None]:
        """Whether it runs or has waited for its source or its sink for longer than a moment, and why."""
        reports, now = self.running.reports, time.monotonic()
        if self.retrying and reports.retry_cause and now - reports.retry_began > SINK_MOMENT_SECONDS:
            return "waiting for sink", reports.retry_cause
        asked, since, seen = self.asking
        # A large directory takes its time to be listed.
        usual = max((record.durations.get("latestOffset", 0) for record in self.recent), default=0) / 1000
        if asked and since > self.event_at and seen - since > max(SOURCE_MOMENT_SECONDS, USUAL_TIMES * usual):
            return "waiting for source", _silent(asked, self.query)
        return "running", None

    def asks(self, source: str) -> None:
        """Take which source Spark asks at this moment for what is new; empty: none."""
        name, since, _ = self.asking
        now = time.monotonic()
        self.asking = source, since if source == name and since > self.event_at else now, now

    @property
    def retrying(self) -> bool:
        """Whether the sink tries its batch again."""
        last = self.committed_before if self.last_batch is None else self.last_batch
        retried = self.running.reports.retried
        return bool(retried) and (last is None or retried[-1] > last)

    def at_work(self, work: BatchWork | None) -> None:
        """Take how far the running batch is."""
        if work is not None and (self.work is None or self.work.mark != work.mark):
            self.work, self.worked_at = work, time.monotonic()

    @property
    def due_at(self) -> float:
        """Until when Spark should report a batch, or of having nothing to do; between two triggers it is silent."""
        return self.moved_at + (self.trigger.interval.seconds if isinstance(self.trigger, Every) else 0.0)

    def with_lag(self, record: BatchRecord) -> BatchRecord:
        """`record` with what its sources still hold; where many batches end in a moment, as it was a moment before."""
        project, begun = self.running.project, time.monotonic()
        if self.archive is not None and begun >= self.lag_at:
            self.lags = lags(project, self.query, self.running.layout, counted=record.batch, cheap=True)
            ended = time.monotonic()
            self.lag_at = ended + min(LAG_SECONDS, LAG_SHARE * (ended - begun))
        waiting = {**self.lags, **read_reported_lags(project, self.query, record)}
        sources = tuple(replace(source, lag=waiting.get(source.name)) for source in record.sources)
        return replace(record, backlog=total(waiting), sources=sources)

    def new_warnings(self, record: BatchRecord) -> Iterator[Finding]:
        """What ails a query when it begins to: of one that is to end, its event times alone."""
        self.recent.append(record)
        facts = {"watermarked": self.running.watermarked, "state_budget_bytes": self.query.state_budget_bytes}
        judged = find_wrong_times(self.recent) if self.ends else health(self.recent, **facts)  # type: ignore[arg-type]
        findings = {(finding.code, finding.severity): finding for finding in judged}
        yield from (findings[mark] for mark in sorted(findings.keys() - self.warnings))
        # Rows without a time are reported once.
        self.warnings = frozenset({*findings, *(mark for mark in self.warnings if mark[0] == NULL_TIMES)})


def _silent(asked: str, query: Query) -> Finding:
    """What is said of a source that has not answered, which Spark names so."""
    return Finding(
        code="HR864",
        what=f"Spark has asked {asked} what is new and got no answer",
        fix="look whether its server runs and can be reached; the query continues as soon as it answers",
        where=query.where,
    )


POLL_SECONDS = 0.1
LAST_EVENTS_SECONDS = 3.0
# So long stops, starts and orders wait for batches to be recorded, which may come faster: bad rows are read again.
TAKE_SECONDS = 1.0


class Watching:
    """The running queries by Spark's id of each start; takes the listener's events, always in one thread.

    progressed: takes the report of a batch. worked: gets each query that has made one, or has nothing to do.

    starting: how many queries are being started. While some are, events of an unknown start are kept: they may be the
    first ones of one of these.
    """

    def __init__(
        self, listener: Listener, progressed: Callable[[QueryRun, str], None], worked: Callable[[str], None]
    ) -> None:
        self.starting = 0
        self._listener = listener
        self._progressed, self._worked = progressed, worked
        self._running: dict[str, QueryRun] = {}
        self._former: dict[str, QueryRun] = {}
        self._early: list[ListenerEvent] = []

    def __iter__(self) -> Iterator[QueryRun]:
        return iter(list(self._running.values()))

    def __bool__(self) -> bool:
        return bool(self._running)

    def find(self, query: str) -> QueryRun | None:
        """The running query of this name."""
        return next((watched for watched in self if watched.query.name == query), None)

    def add(self, watched: QueryRun) -> None:
        """Watch a query that has started."""
        self._running[str(watched.running.handle.runId)] = watched

    def watch_restart(self, watched: QueryRun, running: Running) -> None:
        """Watch the next start of a query; events of the one before may still come."""
        self._forget_former(watched)
        before = str(watched.running.handle.runId)
        self._former[before] = self._running.pop(before)
        watched.running = running
        self.add(watched)

    def remove(self, watched: QueryRun) -> None:
        """Watch a query no more."""
        self._running.pop(str(watched.running.handle.runId), None)
        self._forget_former(watched)

    def end_start(self) -> None:
        """Take what was kept of a start that has come to its end; once there is no other one, forget the rest."""
        self.starting -= 1
        early, self._early = self._early, []
        for event in early:
            self._take(event)

    def take_events(self, *, seconds: float = POLL_SECONDS, most_seconds: float = math.inf) -> None:
        """Wait up to `seconds` for one event, then take those that are there by then, for `most_seconds` at most."""
        events, until = self._listener.events, time.monotonic() + most_seconds
        try:
            event = events.get(timeout=seconds) if seconds else events.get_nowait()
            for _ in range(events.qsize()):
                self._take(event)
                if time.monotonic() >= until:
                    return
                event = events.get_nowait()
        except queue.Empty:
            return
        self._take(event)

    def drain_events(self, watched: QueryRun) -> None:
        """Take the events of a query that has ended, the last of which is its end."""
        until = time.monotonic() + LAST_EVENTS_SECONDS
        while not watched.terminated and time.monotonic() < until:
            self.take_events()
        self.take_events(seconds=0.0)  # It may have come while many others were taken.
        watched.terminated = False

    def _take(self, event: ListenerEvent) -> None:
        watched = self._running.get(event.run_id) or self._former.get(event.run_id)
        if watched is None:
            if self.starting:
                self._early.append(event)
            return
        if event.kind == "terminated" and event.run_id == str(watched.running.handle.runId):
            watched.terminated = True
        watched.event_at = time.monotonic()
        if event.kind == "progress":
            self._progressed(watched, event.json)
        if event.kind in ("progress", "idle"):
            self._worked(watched.query.name)

    def _forget_former(self, watched: QueryRun) -> None:
        self._former = {run_id: other for run_id, other in self._former.items() if other is not watched}
