"""The drivers of a timeline: they start its query, let batches in, and die at the given boundaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace import registry
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.directory import Part, replace_file
from headrace.checks.change_data import options_of
from headrace.contract import BatchRecord, Boundary, Sink, readable_back
from headrace.errors import ProjectError
from headrace.generations.facts import sink_context
from headrace.generations.register import layout_of
from headrace.model import Default, Project, Query, Target
from headrace.starter.request import Request
from headrace.starter.running import Running
from headrace.starter.start import start_query
from headrace.testing.batch_answer import key_of, open_session
from headrace.testing.events import (
    Clock,
    Crash,
    CrashBeforeCommit,
    Pause,
    Refresh,
    RestartEvent,
    TimelineStep,
    WatermarkEvent,
)
from headrace.testing.given import GivenRows, Inlet, make_inlets, with_stand_ins
from headrace.testing.given_tables import GivenTables
from headrace.testing.kept import Kept
from headrace.testing.rows import ResultRows, collect_rows, infer_rows
from headrace.testing.values import moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Died(Exception):
    """The end of a driver."""


# By an event; because the batch has nothing new; because the batch has another time than the timeline.
_Death: TypeAlias = Literal["planned", "idle", "by the clock"]
# 2024-01-01, as times without a day are of.
_CLOCK_BEGINS = 1_704_067_200_000


def _stand_in(project: Project, query: Query, home: Path, key: tuple[str, ...]) -> Sink:
    """Return a table in memory; one in a file of SQLite, where rows are deleted."""
    if query.cdc is None and query.delete_when is None:
        return Kept(key=key)
    table: Sink = registry.connector("sink", "sqlite")(path=str(home / "result.db"), table="result", key=key)
    if query.cdc is None:
        return table
    assert table.changes is not None, "SQLite applies changes"
    return table.changes.bind(options_of(project, query, query.cdc))


class TimelineDriver:
    """Starts the query, lets batches in one after the other, and dies at the given boundaries."""

    def __init__(
        self,
        project: Project,
        query: Query,
        spark: SparkSession,
        home: Path,
        steps: Sequence[TimelineStep],
        *,
        key: tuple[str, ...],
        sink: bool | Callable[[], Iterable[Any]],
    ) -> None:
        batches: dict[str, list[GivenRows]] = {}
        marked = set()
        for step in steps:
            for name, rows in step.rows.items():
                batches.setdefault(name, []).append(rows)
            marked |= {name for name, event in step.events if isinstance(event, WatermarkEvent)}
        self.spark, self._root = spark, project.root
        self.inlets = make_inlets(project, query, batches, spark, home, marked=marked)
        kept = query.sink if sink else _stand_in(project, query, home, key or key_of(query))
        self._holds = sink if callable(sink) else None
        if sink and self._holds is None and not readable_back(query.sink):
            problem = f"the sink '{query.sink_kind}' of query '{query.name}' cannot be read back"
            raise ProjectError(code="HR721", what=problem, fix="leave `sink` out", where=query.where)
        self.query = replace(query, sink=kept, trigger=Default(), renamed_from=())
        target = Target(
            name=project.target.name,
            storage=str(home / "storage"),
            spark=project.target.spark,
            state_store=project.target.state_store,
            checkpoint_durability="process",
        )
        stand_in = with_stand_ins(project, self.inlets)
        project = replace(stand_in, target=target, queries={**project.queries, query.name: self.query}, local=None)
        events = [event for step in steps for _, event in step.events]
        named = {name for event in events if isinstance(event, Refresh) for name in event.tables}
        self.tables = GivenTables(project, self.query, spark, named | set(steps[0].tables))
        self.project = self.tables.project
        self.state_rows = 0
        self.watermark: datetime | None = None
        self._running: Running | None = None
        self._numbers = count(1)
        self._dies_at: Boundary | None = None
        self._died: _Death | None = None
        self._now = _CLOCK_BEGINS if any(isinstance(event, Clock) for event in events) else None
        self._resumed: int | None = None
        self._waits = False

    def run(self, steps: Sequence[TimelineStep]) -> list[ResultRows]:
        """Return the rows that the sink holds after each step."""
        try:
            self.tables.give(steps[0].tables)
            return [self._take(step) for step in steps]
        finally:
            self._stop()

    def _take(self, step: TimelineStep) -> ResultRows:
        crashes = [event for _, event in step.events if isinstance(event, Crash | CrashBeforeCommit)]
        self._let_in(
            {
                name: lambda inlet, rows=rows: inlet.put(next(self._numbers), rows, self._root)  # type: ignore[misc]
                for name, rows in step.rows.items()
                if rows is not None
            },
            crashes,
        )
        for name, event in step.events:
            if isinstance(event, RestartEvent):
                self._stop()
            elif isinstance(event, WatermarkEvent):
                at = moment(event.time)
                self._let_in({name: lambda inlet, at=at: inlet.mark(next(self._numbers), at)}, [])  # type: ignore[misc]
            elif isinstance(event, Refresh):
                self._refresh(event)
            elif isinstance(event, Clock) and self._now is not None:
                self._now += event.milliseconds
            if isinstance(event, Pause | Clock):
                self._wait()
        if self._running is None and not self._waits:
            self._wait()
        self._look()
        return self._rows()

    def _let_in(self, puts: Mapping[str, Callable[[Inlet], int]], crashes: Sequence[Crash | CrashBeforeCommit]) -> None:
        """Let rows in, all at once although Spark looks for files continuously, and wait for them in the result."""
        if self._running is not None and (len(puts) > 1 or len(self._running.uses) > len(self.inlets)):
            self._stop()  # A source is read in two places, or several get rows.
        rows = sum(put(self.inlets[name]) for name, put in puts.items())
        if crashes and not rows:
            problem = f"query '{self.query.name}' cannot crash in a batch without rows"
            raise ProjectError(code="HR721", what=problem, fix="put the crash behind a batch that has rows")
        for crash in crashes:
            self._dies_at = crash.boundary
            self._wait()
        self._dies_at = None  # Of two crashes the second finds the batch in the sink, and nothing to die in.
        self._wait()

    def _refresh(self, event: Refresh) -> None:
        self._stop()
        if self._waits:
            problem = (
                f"query '{self.query.name}' has a batch planned for its timers, which sees the tables as they were"
            )
            raise ProjectError(code="HR721", what=problem, fix="leave Refresh(...) out", where=self.query.where)
        self.tables.give(event.tables)

    def _wait(self) -> None:
        """Start the query if it does not run, and wait until it has nothing to do, or has died as planned.

        With timers of processing time Spark plans one batch after the other: one without anything new is made when the
        timeline goes on, and `_waits` until then.
        """
        while True:
            if self._running is None:
                checkpoint = self._checkpoint
                is_done = checkpoint.last_batch == checkpoint.last_committed
                # The start makes first what is planned and not committed.
                self._resumed = None if is_done else checkpoint.last_batch
                self._set_clock()
                self._running = start_query(
                    Request(project=self.project, query=self.query, spark=self.spark, reached=self._at_boundary)
                )
            self._waits = False
            try:
                self._running.handle.processAllAvailable()
            except Exception:
                died, self._died = self._died, None
                failure = None if died else self._running.failure()
                if died:
                    self._look()
                self._running.clean_up()
                self._running = None
                if died is None:
                    if failure is None:
                        raise
                    raise failure from None
                if died == "planned":
                    self._dies_at = None
                self._waits = died == "idle"
                if died == "by the clock":
                    continue
            return

    def _at_boundary(self, boundary: Boundary, batch: int) -> None:
        checkpoint = self._checkpoint
        planned, before = checkpoint.offset(batch), checkpoint.offset(batch - 1)
        assert planned is not None, "Spark plans a batch before it makes it"
        idle = before is not None and (planned.offsets, planned.watermark_ms) == (before.offsets, before.watermark_ms)
        if idle and batch != self._resumed:
            self._died = "idle"
        elif self._now not in (None, planned.timestamp_ms):
            self._died = "by the clock"
        elif boundary == self._dies_at and not idle:
            self._died = "planned"
        if self._died is not None:
            raise _Died(f"at {boundary} of batch {batch}: {self._died}")

    def _set_clock(self) -> None:
        """Set the time of a planned batch to that of the timeline's clock.

        Spark's own clock cannot be set from Python. But a batch that is made again has the time that the offset log
        notes, so that each batch dies before its rows are written, once, and is made again at the right time.
        """
        if self._now is not None and self._resumed is not None:
            checkpoint = self._checkpoint
            planned = checkpoint.offset(self._resumed)
            assert planned is not None, "it was listed"
            file = checkpoint.root / Part.OFFSETS / str(planned.batch)
            replace_file(file, replace(planned, timestamp_ms=self._now).format())

    def _stop(self) -> None:
        if self._running is not None:
            with suppress(Exception):
                self._running.handle.stop()
            self._running.clean_up()
            self._running = None

    def _look(self) -> None:
        """Record what only the running query shows."""
        checkpoint = self._checkpoint
        last = checkpoint.last_committed
        for progress in self._running.handle.recentProgress if self._running is not None else ():
            if progress["batchId"] == last:
                self.state_rows = BatchRecord.parse(progress.json).state_rows or 0
        commit = None if last is None else checkpoint.commit(last)
        if commit is not None and commit.next_watermark_ms > 0:
            self.watermark = datetime(1970, 1, 1) + timedelta(milliseconds=commit.next_watermark_ms)

    def _rows(self) -> ResultRows:
        if isinstance(self.query.sink, Kept):
            return self.query.sink.rows()
        if self._holds is not None:
            return infer_rows(self._holds(), self.spark)
        context = sink_context(self.project, self.query, layout_of(self.project, self.query))
        with open_session(self.project, self.spark) as spark:
            snapshot = self.query.sink.read_back(spark, context)
            return collect_rows(snapshot.rows, snapshot.key)

    @property
    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(layout_of(self.project, self.query).checkpoint)
