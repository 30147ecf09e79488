"""A started query, and what its sink reports."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.sources import SourceNames
from headrace.contract import ChangeCounts, SinkContext
from headrace.errors import Fenced, Finding, HeadraceError, QueryFailed
from headrace.frames.tables import Tables
from headrace.generations.driver_lock import DriverLock
from headrace.generations.log import QueryLayout
from headrace.model import Project, Query
from headrace.planner.forming import DeclaredCode
from headrace.registry import known_failures
from headrace.spark.messages.failures import failure_of, is_of_another_driver
from headrace.starter.counters import Counters

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(kw_only=True)
class Reports:
    """What the sink of a running query reports, to be taken by what watches it.

    report: takes at once what comes before the sink is ready.
    faults: what ended a batch. news: other things that a user should know of. computed: for each batch, whether each
    time that its sink computed it came to the end. retried: the batches that were tried again, once for each time.
    retry_cause, retry_began: why the last of them was, and since when.
    written: for each batch, how many seconds its sink took by itself. changes: what it did to the result, of changes.
    """

    query: Query
    report: Callable[[Finding], None] | None = None
    faults: list[HeadraceError] = field(default_factory=list)
    news: SimpleQueue[Finding] = field(default_factory=SimpleQueue)
    computed: dict[int, list[bool]] = field(default_factory=dict)
    retried: list[int] = field(default_factory=list)
    retry_cause: Finding | None = None
    retry_began: float = 0.0
    written: dict[int, float] = field(default_factory=dict)
    changes: dict[int, ChangeCounts] = field(default_factory=dict)

    def note(self, finding: Finding) -> None:
        """Report a finding, or keep it until it is taken."""
        (self.report or self.news.put)(finding.reword(where=self.query.where))

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

    project: the one that it is declared in. code: digests of its code.
    uses: Spark's name of each use of a source, in the plan's order. names: of its sources.
    last_job: the newest of Spark's jobs that its tasks' times were looked at of.
    disturbances: how many tasks had failed and executors were lost at the last batch. reads_all: whether its plan reads
        all that a batch's offsets hold; None: not known yet.
    rows_tracked: whether its state store counts its rows.
    ended_by: what has been done to it from outside, because of which it is ended.
    columns: gives the names and types of those of each source, and of the result under no name.
    tables, versions: those that are recomputed while it runs, and which versions it was started over.
    """

    project: Project
    query: Query
    code: DeclaredCode
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
            connectors=self.project.connectors_of(self.query),
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
