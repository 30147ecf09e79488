"""What a start is asked for, and the running query that it gives back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from headrace.build.tables import Tables
from headrace.contract import Boundary, Connector, SinkContext
from headrace.errors import Fenced, Finding, HeadraceError, QueryFailed
from headrace.model import Project, Query, Trigger
from headrace.queries.driver_lock import DriverLock
from headrace.queries.layout import QueryLayout
from headrace.registry import known_failures
from headrace.run.attempt import Attempt
from headrace.run.counters import Counters
from headrace.spark.messages.failures import failure_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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
    written: for each batch, how many seconds its sink took by itself.
    """

    query: Query
    tell: Callable[[Finding], None] | None = None
    faults: list[HeadraceError] = field(default_factory=list)
    news: SimpleQueue[Finding] = field(default_factory=SimpleQueue)
    computed: dict[int, list[bool]] = field(default_factory=dict)
    retried: list[int] = field(default_factory=list)
    written: dict[int, float] = field(default_factory=dict)

    def note(self, finding: Finding) -> None:
        """Tell a finding, or keep it until it is taken."""
        (self.tell or self.news.put)(finding.but(where=self.query.where))

    def count(self, batch: int, whole: bool) -> None:
        """Keep that the sink computed a batch, to its end or not."""
        self.computed.setdefault(batch, []).append(whole)


@dataclass(kw_only=True)
class Running:
    """A started query: Spark's handle, where it keeps things, and what its sink reported: faults, and other news.

    computed: for each batch, whether each time that its sink computed it came to the end. retried: the batches that it
        tried again, once for each time. written: for each batch, how many seconds its sink took by itself.
    last_job: the newest of Spark's jobs that its tasks' times were looked at of.
    disturbances: how many tasks had failed and executors were lost at the last batch. reads_all: whether its plan reads
        all that a batch's offsets hold; None: not known yet.
    rows_tracked: whether its state store counts its rows.
    connectors: its sources and its sink, which explain failures of their own.
    columns: gives the names and types of those of each source, and of the result under no name.
    tables, versions: those that are recomputed while it runs, and which versions it was started over.
    """

    query: Query
    layout: QueryLayout
    sink_run: SinkContext
    handle: StreamingQuery
    source_names: tuple[str, ...]
    watermarked: tuple[str, ...]
    notes: tuple[Finding, ...]
    faults: list[HeadraceError]
    news: SimpleQueue[Finding]
    computed: dict[int, list[bool]]
    retried: list[int]
    written: dict[int, float]
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

    def failure(self) -> HeadraceError | None:
        """Why the query ended, of the class that its sink gave the error; None when it ended well."""
        finding = failure_of(
            self.handle,
            self.faults,
            subject=f"query '{self.query.name}'",
            where=self.query.where,
            connectors=self.connectors,
            installed=known_failures,
        )
        if finding is None:
            return None
        return Fenced(finding) if isinstance(next(reversed(self.faults), None), Fenced) else QueryFailed(finding)

    def clean_up(self) -> None:
        """Let others run the query, and remove the checkpoint of a sink that keeps nothing."""
        self.counters.counting.close()
        if self.lock is not None:
            self.lock.release()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
