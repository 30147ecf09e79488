"""A query of a run: what is asked of its start, the started query, and what the supervisor keeps of it."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.sources import SourceNames
from headrace.contract import BatchRecord, BatchWork, Boundary, ChangeCounts, Connector, Lag, SinkContext
from headrace.contract.observer import State
from headrace.control.board import Order
from headrace.errors import Fenced, Finding, HeadraceError, QueryFailed
from headrace.frames.tables import Tables
from headrace.history.health import NULL_TIMES, find_wrong_times, health
from headrace.history.lag import lags, read_reported_lags, total
from headrace.model import Every, Project, Query, Trigger
from headrace.queries.driver_lock import DriverLock
from headrace.queries.layout import QueryLayout
from headrace.registry import known_failures
from headrace.run.counters import Counters
from headrace.run.late_output import LateOutput
from headrace.run.source_health import QuarantineFiles, SourceHealth
from headrace.spark.messages.failures import failure_of, is_of_another_driver
from headrace.spark.stream.foreach_batch import Halt
from headrace.spark.stream.listener import Listener, ListenerEvent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class GivenUp(BaseException):
    """A start that was given up has come to the end of its wait; nothing was started, and nobody waits for it."""


class Attempt:
    """One start, which may be given up while it makes its sink ready: there it can wait long for another driver.

    makes_ready: whether it does so now.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.makes_ready = False
        self._given_up = False

    @contextmanager
    def making_ready(self) -> Iterator[None]:
        """Let the start be given up inside the block; raises GivenUp at its end if it was."""
        with self._lock:
            self.makes_ready = True
        try:
            yield
        finally:
            with self._lock:
                self.makes_ready = False
        if self._given_up:
            raise GivenUp

    def give_up(self) -> bool:
        """Give the start up if it may be; it then starts nothing, whenever its wait ends."""
        with self._lock:
            self._given_up = self._given_up or self.makes_ready
            return self._given_up


Reached = Callable[[Boundary, int], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be started, and how.

    query: with the trigger that it is to run with.
    reached: called at each boundary of a batch.
    versions: of its tables that are recomputed while it runs; None: those of a batch that was planned and not
        committed, or else they are computed.
    tell: takes at once what the sink has to say while it is made ready, as that it waits for a lock.
    preparing: told of each step as it begins.
    attempt: by which the start may be given up meanwhile.
    restoring: one batch alone is made again, because the checkpoint has lost it.
    settings: of the session, while the query is planned and started.
    """

    project: Project
    query: Query
    spark: SparkSession
    reached: Reached | None = None
    versions: Mapping[str, int] | None = None
    tell: Callable[[Finding], None] | None = None
    preparing: Callable[[str], None] | None = None
    attempt: Attempt = field(default_factory=Attempt)
    restoring: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def trigger(self) -> Trigger:
        return self.query.trigger

    def begin(self, step: str) -> None:
        """Say which step of the start begins."""
        if self.preparing is not None:
            self.preparing(step)


@dataclass(kw_only=True)
class Reports:
    """What the sink of a running query reports, to be taken by whoever watches it.

    tell: takes at once what comes before the sink is ready.
    faults: what ended a batch. news: other things that a user should know of. computed: for each batch, whether each
    time that its sink computed it came to the end. retried: the batches that were tried again, once for each time.
    retry_cause, retry_began: why the last of them was, and since when.
    written: for each batch, how many seconds its sink took by itself. changes: what it did to the result, of changes.
    """

    query: Query
    tell: Callable[[Finding], None] | None = None
    faults: list[HeadraceError] = field(default_factory=list)
    news: SimpleQueue[Finding] = field(default_factory=SimpleQueue)
    computed: dict[int, list[bool]] = field(default_factory=dict)
    retried: list[int] = field(default_factory=list)
    retry_cause: Finding | None = None
    retry_began: float = 0.0
    written: dict[int, float] = field(default_factory=dict)
    changes: dict[int, ChangeCounts] = field(default_factory=dict)

    def note(self, finding: Finding) -> None:
        """Tell a finding, or keep it until it is taken."""
        (self.tell or self.news.put)(finding.reword(where=self.query.where))

    def retry(self, batch: int, cause: Finding | None) -> None:
        """Keep that the sink tries a batch again, and why."""
        if self.retried[-1:] != [batch] or self.retry_cause is None:
            self.retry_began = time.monotonic()
        self.retry_cause = cause
        self.retried.append(batch)

    def count(self, batch: int, whole: bool) -> None:
        """Keep that the sink computed a batch, to its end or not."""
        self.computed.setdefault(batch, []).append(whole)


@dataclass(kw_only=True)
class Running:
    """A started query: Spark's handle, where it keeps things, and what its sink reports.

    uses: Spark's name of each use of a source, in the plan's order. names: of its sources.
    last_job: the newest of Spark's jobs that its tasks' times were looked at of.
    disturbances: how many tasks had failed and executors were lost at the last batch. reads_all: whether its plan reads
        all that a batch's offsets hold; None: not known yet.
    rows_tracked: whether its state store counts its rows.
    connectors: its sources and its sink, which explain failures of their own.
    ended_by: what has been done to it from outside, because of which it is ended.
    columns: gives the names and types of those of each source, and of the result under no name.
    tables, versions: those that are recomputed while it runs, and which versions it was started over.
    """

    query: Query
    layout: QueryLayout
    sink_run: SinkContext
    handle: StreamingQuery
    uses: tuple[str, ...]
    names: SourceNames
    watermarked: tuple[str, ...]
    notes: tuple[Finding, ...]
    reports: Reports
    last_job: int = -1
    disturbances: tuple[int, int] = (0, 0)
    reads_all: bool | None = None
    rows_tracked: bool = True
    tables: Tables
    versions: Mapping[str, int]
    counters: Counters
    connectors: tuple[Connector, ...] = ()
    columns: Callable[[], Mapping[str, Sequence[tuple[str, str]]]] = dict
    scratch: Path | None = None
    lock: DriverLock | None = None
    ended_by: HeadraceError | None = None

    def failure(self) -> HeadraceError | None:
        """Why the query ended, of the class that its sink gave the error; None when it ended well."""
        if self.ended_by is not None:
            return self.ended_by
        finding = failure_of(
            self.handle,
            self.reports.faults,
            subject=f"query '{self.query.name}'",
            where=self.query.where,
            connectors=self.connectors,
            installed=known_failures,
        )
        if finding is None:
            return None
        return (
            Fenced(finding) if isinstance(next(reversed(self.reports.faults), None), Fenced) else QueryFailed(finding)
        )

    def meets_another_driver(self) -> bool:
        """Whether it ended because Spark found another driver at work on the checkpoint."""
        error = None if self.reports.faults else self.handle.exception()
        return error is not None and is_of_another_driver(str(error))

    def clean_up(self) -> None:
        """Let others run the query, and remove the checkpoint of a sink that keeps nothing."""
        self.counters.counting.close()
        if self.lock is not None:
            self.lock.release()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def last_committed(checkpoint: Path) -> int | None:
    """The last batch that was committed; a checkpoint that cannot be read is reported by the start."""
    try:
        return Checkpoint(checkpoint).last_committed
    except (HeadraceError, OSError):
        return None


Begun: TypeAlias = tuple[Running | HeadraceError, bool]
"""A running query, or why it did not start, and whether it first finishes a batch that was begun before."""


# What waits in the sources is looked at again after a second, or sooner where that takes a twentieth of the time.
LAG_SECONDS, LAG_SHARE = 1.0, 20
HEALTH_BATCHES = 20
# Another writer that was quicker is no outage, nor is a source that takes some seconds.
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
        """When Spark last told of a batch or of having nothing to do, or a task of the running batch moved."""
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
        """Until when Spark should tell of a batch, or of having nothing to do; between two triggers it is silent."""
        return self.moved_at + (self.trigger.interval.seconds if isinstance(self.trigger, Every) else 0.0)

    def with_lag(self, project: Project, record: BatchRecord) -> BatchRecord:
        """`record` with what its sources still hold; where many batches end in a moment, as it was a moment before."""
        begun = time.monotonic()
        if self.archive is not None and begun >= self.lag_at:
            self.lags = lags(project, self.query, self.running.layout, counted=record.batch, cheap=True)
            ended = time.monotonic()
            self.lag_at = ended + min(LAG_SECONDS, LAG_SHARE * (ended - begun))
        found = {**self.lags, **read_reported_lags(project, self.query, record)}
        sources = tuple(replace(source, lag=found.get(source.name)) for source in record.sources)
        return replace(record, backlog=total(found), sources=sources)

    def new_warnings(self, record: BatchRecord) -> Iterator[Finding]:
        """What ails a query when it begins to: of one that is to end, its event times alone."""
        self.recent.append(record)
        facts = {"watermarked": self.running.watermarked, "state_budget_bytes": self.query.state_budget_bytes}
        judged = find_wrong_times(self.recent) if self.ends else health(self.recent, **facts)  # type: ignore[arg-type]
        found = {(finding.code, finding.severity): finding for finding in judged}
        yield from (found[mark] for mark in sorted(found.keys() - self.warnings))
        # Rows without a time are reported once.
        self.warnings = frozenset({*found, *(mark for mark in self.warnings if mark[0] == NULL_TIMES)})


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


class Watching:
    """The running queries by Spark's id of each start; takes the listener's events, always in one thread.

    progressed: takes the report of a batch. worked: is told of each query that has made one, or has nothing to do.

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

    def restarted(self, watched: QueryRun, running: Running) -> None:
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

    def hear(self, *, seconds: float = POLL_SECONDS) -> None:
        """Wait up to `seconds` for one event, then take all that are there."""
        events = self._listener.events
        try:
            event = events.get(timeout=seconds) if seconds else events.get_nowait()
            while True:
                self._take(event)
                event = events.get_nowait()
        except queue.Empty:
            return

    def hear_out(self, watched: QueryRun) -> None:
        """Take the events of a query that has ended, the last of which tells of its end."""
        until = time.monotonic() + LAST_EVENTS_SECONDS
        while not watched.terminated and time.monotonic() < until:
            self.hear()
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
