"""A running query with what the supervisor keeps of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from headrace.checkpoint.archive import Archive
from headrace.contract import BatchWork, Lag
from headrace.errors import Finding
from headrace.model import Every, Project, Query, Trigger
from headrace.observe.lag import lags, reported_lags, total
from headrace.observe.orders import Order
from headrace.observe.progress import BatchRecord
from headrace.observe.progress.health import health
from headrace.run.quarantine import QuarantineFiles
from headrace.run.refresh import Refresher
from headrace.run.running import Running
from headrace.run.source_health import SourceHealth
from headrace.spark.stream.foreach_batch import Halt

# What waits in the sources is looked at again after a second, or sooner where that takes a twentieth of the time.
LAG_SECONDS, LAG_SHARE = 1.0, 20
HEALTH_BATCHES = 20


@dataclass(kw_only=True)
class QueryRun:
    """A running query with what the supervisor keeps of it.

    finishing: it makes one batch again, with the tables that the batch was begun with, before it continues with others.
    stop_gracefully: it is being halted, to continue with others. last_wanted: the batch after which it may be stopped.
    order: what somebody wants done with it. began: when it was started. work, worked_at: how far the running batch was
    when its tasks last moved, and when that was.
    """

    running: Running
    trigger: Trigger
    history_run: int | None
    committed_before: int | None = None
    archive: Archive | None
    quarantine: QuarantineFiles | None
    source_health: SourceHealth
    batches: int = 0
    rows: int = 0
    last_batch: int | None = None
    last_wanted: int | None = None
    asked: bool = False
    order: Order | None = None
    began: float = field(default_factory=time.monotonic)
    terminated: bool = False
    lags: dict[str, Lag | None] = field(default_factory=dict)
    lag_at: float = field(default=0.0)
    event_at: float = field(default_factory=time.monotonic)
    worked_at: float = 0.0
    work: BatchWork | None = None
    looked_at: float = 0.0
    finishing: bool = False
    stop_gracefully: Halt | None = None
    refresher: Refresher | None = None
    recent: deque[BatchRecord] = field(default_factory=lambda: deque(maxlen=HEALTH_BATCHES))
    warnings: frozenset[str] = frozenset()
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

    @property
    def retrying(self) -> bool:
        """Whether the sink tries its batch again."""
        last = self.committed_before if self.last_batch is None else self.last_batch
        return bool(self.running.retried) and (last is None or self.running.retried[-1] > last)

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
            self.lags = lags(project, self.query, self.running.layout, cheap=True)
            ended = time.monotonic()
            self.lag_at = ended + min(LAG_SECONDS, LAG_SHARE * (ended - begun))
        found = {**self.lags, **reported_lags(project, self.query, record)}
        sources = tuple(replace(source, lag=found.get(source.name)) for source in record.sources)
        return replace(record, backlog=total(found), sources=sources)

    def new_warnings(self, record: BatchRecord) -> Iterator[Finding]:
        """What ails a query that is to run on, when it begins to."""
        self.recent.append(record)
        if self.ends:
            return
        judged = health(
            self.recent, watermarked=self.running.watermarked, state_budget_bytes=self.query.state_budget_bytes
        )
        found = {finding.code: finding for finding in judged}
        yield from (found[code] for code in sorted(found.keys() - self.warnings))
        self.warnings = frozenset(found)
