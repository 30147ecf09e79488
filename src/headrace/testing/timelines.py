"""A query run over batches that a test gives, through crashes and restarts, and what it holds after each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.build.plan_builder import registered_tables
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.sources import source_of
from headrace.contract import Boundary, readable_back
from headrace.errors import CheckFailed, Finding, ProjectError
from headrace.model import Default, Project, Query, Target
from headrace.queries.layout import QueryLayout, layout_of
from headrace.run.query_run import Request, Running
from headrace.run.start import bring_up
from headrace.spark.jvm.session_conf import applied
from headrace.spark.jvm.settings import WHOLE_JSON_UTC
from headrace.spark.plans.operators import DEDUPLICATIONS
from headrace.testing.batch_answer import key_of, own_settings, reading, require_batch_form
from headrace.testing.given import GivenRows, Inlet, inlets, standing_in
from headrace.testing.kept import Kept
from headrace.testing.rows import ResultRow, ResultRows, collected, described, differences, held_rows, local_rows
from headrace.testing.spark_session import shared_session
from headrace.testing.values import moment
from headrace.verify import verify
from headrace.verify.answer import BatchAnswer, answer, prefix_of
from headrace.verify.batch_ranges import version_ranges
from headrace.verify.proof import sink_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class TimelineEvent:
    """What happens between two batches of a timeline, after the one that it stands behind."""


@dataclass(frozen=True)
class Crash(TimelineEvent):
    """The driver dies in the batch before it, after the sink's commit and before the checkpoint's; then it resumes."""

    boundary: Boundary = field(default="after-transaction", init=False)


@dataclass(frozen=True)
class CrashBeforeCommit(TimelineEvent):
    """The driver dies in the batch before it, when its rows are written and not committed; then it resumes."""

    boundary: Boundary = field(default="inside-transaction", init=False)


@dataclass(frozen=True)
class RestartEvent(TimelineEvent):
    """The query is stopped and started again."""


@dataclass(frozen=True)
class WatermarkEvent(TimelineEvent):
    """The watermark of this input moves to `time`, as by a row that the query does not see."""

    time: str | datetime


Restart, Watermark = RestartEvent, WatermarkEvent
Item: TypeAlias = "TimelineEvent | GivenRows"


class _Died(Exception):
    """The end of a driver."""


@dataclass
class _Step:
    """The batches that come together, and what happens after them."""

    rows: dict[str, GivenRows] = field(default_factory=dict)
    events: list[tuple[str, TimelineEvent]] = field(default_factory=list)


@dataclass(kw_only=True, eq=False)
class TimelineRun:
    """What a query made of a timeline. A time is a datetime on the clock of the session's time zone.

    steps: what the sink held after each batch, with the events behind it. watermark: UTC, without a zone; None: none
    yet. state_rows: how many rows its state held at the end.
    """

    project: Project
    query: Query
    steps: list[ResultRows]
    watermark: datetime | None
    state_rows: int
    _inlets: Mapping[str, Inlet]
    _spark: SparkSession
    _home: tempfile.TemporaryDirectory[str]

    def after(self, batch: int) -> ResultRows:
        """The rows of the result after the batch of this number, from 1 on, and the events that stand behind it."""
        if not 1 <= batch <= len(self.steps):
            raise IndexError(f"the timeline has {len(self.steps)} batches, and none is number {batch}")
        return self.steps[batch - 1]

    @property
    def final(self) -> ResultRows:
        """The rows of the result at the end."""
        return self.steps[-1]

    @property
    def batch(self) -> ResultRows:
        """The answer of the query as a batch over the same rows, without those that came late and the groups that are
        still open, as `verify` computes it. Raises CheckFailed for a query that has no batch form."""
        rows, found = self._answer
        require_batch_form(self.query, found)
        assert rows is not None, "only a state function has none"
        return rows

    @cached_property
    def late(self) -> list[ResultRow]:
        """The rows that were dropped as late, as they were given, in their order. Raises CheckFailed where it is not
        known which."""
        _, found = self._answer
        if found.incomplete:
            raise CheckFailed(found.incomplete)
        return list(self._late_rows())

    @property
    def late_schema(self) -> StructType:
        """The columns of the sources, of which late rows have those of one."""
        from pyspark.sql.types import StructType

        fields = {field.name: field for inlet in self._inlets.values() for field in inlet.schema}
        return StructType(list(fields.values()))

    @cached_property
    def quarantined(self) -> list[str]:
        """The lines of files that broke the schema, where the source quarantines them and is given lines of text."""
        lines: list[str] = []
        with reading(self.project, self._spark) as spark:
            prefix = self._prefix(named=False)
            for inlet in self._inlets.values():
                source = inlet.stand_in
                rejected = source.connector.rejected_rows(spark, prefix.sources[source.name]) if inlet.raw else None
                if rejected is not None:
                    lines += [row["record"] for row in rejected.orderBy("batch").collect()]
        return lines

    @property
    def has_batch_answer(self) -> bool:
        """Whether the result can be compared with a batch answer: no state function makes it, and a key of update mode
        tells which rows replace which. Raises CheckFailed where `batch` does for another reason."""
        _, found = self._answer
        return not found.by_function and not (self.query.mode == "update" and not key_of(self.query))

    @property
    def first_come_first_served(self) -> bool:
        """Whether the order of rows decides by intent: of duplicates, or of rows that replace one another by key."""
        operators = self._answer[1].operators
        replacing = not operators and self.query.mode == "update"
        return replacing or any(operator.kind in DEDUPLICATIONS for operator in operators)

    def require_batch_answer(self) -> None:
        """Raise AssertionError where the result is not the batch answer, with what keeps that from being certain."""
        if not self.has_batch_answer:
            return
        differing = differences(self.batch, self.final)
        if not differing:
            return
        reasons: tuple[Finding, ...] = ()
        if self._answer[1].caveats:
            verdict = verify(self.project, self.query.name, spark=self._spark)
            if verdict.state not in ("mismatch", "undecided"):
                return
            reasons = verdict.findings if verdict.state == "undecided" else ()
        what = f"the result of query '{self.query.name}' is not the batch answer (-) over the same rows"
        raise AssertionError("\n".join([f"{what}:", described(differing), *map(str, reasons)]))

    def _prefix(self, *, named: bool) -> Any:
        layout = layout_of(self.project, self.query)
        last = Checkpoint(layout.checkpoint).last_committed
        assert last is not None, "a batch was waited for"
        return replace(prefix_of(self.project, self.query, layout, last), named=named)

    @cached_property
    def _answer(self) -> tuple[ResultRows | None, BatchAnswer]:
        """The batch answer; no rows of one that a state function makes, which may be none to Spark."""
        with reading(self.project, self._spark) as spark:
            found = self._answered(spark, named=False)
            return None if found.by_function else collected(found.frame, key_of(self.query)), found

    def _answered(self, spark: SparkSession, *, named: bool) -> BatchAnswer:
        prefix = self._prefix(named=named)
        with registered_tables(self.project, self.query, spark):
            over = version_ranges(self.project, self.query, layout_of(self.project, self.query), prefix.through, spark)
            return answer(self.project, self.query, prefix, spark, over, key_of(self.query))

    def _late_rows(self) -> Iterator[ResultRow]:
        from pyspark.sql import functions as F

        prefix = self._prefix(named=False)
        with reading(self.project, self._spark) as spark:
            for dropped in self._answered(spark, named=True).late:
                for inlet in self._inlets.values():
                    stand_in = inlet.stand_in
                    uses = [use for use in prefix.sources if source_of(use) == stand_in.name]
                    shape = stand_in.connector.read(spark, prefix.sources[stand_in.name]).schema
                    mine = dropped.rows.where(F.col("origin.source").isin(uses))
                    line = F.from_json("origin.line", shape, WHOLE_JSON_UTC).alias("row")
                    ordered = mine.orderBy("batch", "origin.number").select(line).select("row.*")
                    types = {each.name: each.dataType for each in shape}
                    for row in local_rows(ordered.select(*[f"`{column}`" for column in inlet.schema.names])):
                        yield ResultRow(dict(zip(inlet.schema.names, row, strict=True)), types)


def timeline(
    project: Project,
    query: str,
    *,
    spark: SparkSession | None = None,
    key: Sequence[str] = (),
    batch: bool = True,
    sink: bool | Callable[[], Iterable[Any]] = False,
    given: Mapping[str, Sequence[Item]] | None = None,
    **inputs: Sequence[Item],
) -> TimelineRun:
    """Run `query` over batches of rows and events, given by the names of its sources (or in `given`).

    A batch is what `evaluate` takes as rows, or None. The first batches of all inputs come together, then the second
    ones, and so on; an event happens after the batch behind which it stands. The query runs as `headrace run` starts
    it, in a storage of its own, with the sink replaced by a table in memory. `sink` keeps the real one, as does a
    function that gives what the real one holds: rows as dicts, or as tuples of equal length. key: the columns by which
    rows of the result are told apart, where the sink does not say. batch: raise AssertionError where
    the result is not the batch answer at the end. Raises as `evaluate`, and what the query fails with.
    """
    declared = project.query(query)
    session = spark or shared_session()
    stepped = _steps({**(given or {}), **inputs})
    home = tempfile.TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True)
    driver = _Driver(project, declared, session, Path(home.name), stepped, key=tuple(key), sink=sink)
    with applied(session, own_settings(project, session)):
        steps = driver.run(stepped)
    run = TimelineRun(
        project=driver.project,
        query=driver.query,
        steps=steps,
        watermark=driver.watermark,
        state_rows=driver.state_rows,
        _inlets=driver.inlets,
        _spark=session,
        _home=home,
    )
    if batch:
        run.require_batch_answer()
    return run


class _Driver:
    """Starts the query, lets batches in one after the other, and dies where it is told to."""

    def __init__(
        self,
        project: Project,
        query: Query,
        spark: SparkSession,
        home: Path,
        steps: Sequence[_Step],
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
        self.inlets = inlets(project, query, batches, spark, home, marked=marked)
        kept = query.sink if sink else Kept(key=key or key_of(query))
        self._holds = sink if callable(sink) else None
        if sink and self._holds is None and not readable_back(query.sink):
            what = f"the sink '{query.sink_kind}' of query '{query.name}' cannot be read back"
            raise ProjectError(Finding(code="HR721", what=what, fix="leave `sink` out", where=query.where))
        self.query = replace(query, sink=kept, trigger=Default(), renamed_from=())
        target = Target(
            name=project.target.name,
            storage=str(home / "storage"),
            spark=project.target.spark,
            state_store=project.target.state_store,
            checkpoint_durability="process",
        )
        stand_in = standing_in(project, self.inlets)
        self.project = replace(stand_in, target=target, queries={**project.queries, query.name: self.query}, local=None)
        self.state_rows = 0
        self.watermark: datetime | None = None
        self._running: Running | None = None
        self._files = 0
        self._dies_at: Boundary | None = None
        self._died = False

    def run(self, steps: Sequence[_Step]) -> list[ResultRows]:
        """The rows that the sink holds after each step."""
        held = []
        try:
            for step in steps:
                held.append(self._take(step))
        finally:
            self._stop()
        return held

    def _take(self, step: _Step) -> ResultRows:
        crashes = [event for _, event in step.events if isinstance(event, Crash | CrashBeforeCommit)]
        self._let_in(
            {
                name: lambda inlet, rows=rows: inlet.put(self._number(), rows, self._root)  # type: ignore[misc]
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
                self._let_in({name: lambda inlet, at=at: inlet.mark(self._number(), at)}, [])  # type: ignore[misc]
        if self._running is None:
            self._wait()
        self._look()
        return self._rows()

    def _let_in(self, puts: Mapping[str, Callable[[Inlet], int]], crashes: Sequence[Crash | CrashBeforeCommit]) -> None:
        """Let rows in and wait until they are in the result; all at once, though Spark looks for files all the time."""
        if self._running is not None and (len(puts) > 1 or self._uses_twice):
            self._stop()
        rows = sum(put(self.inlets[name]) for name, put in puts.items())
        if crashes and not rows:
            what = f"query '{self.query.name}' cannot crash in a batch without rows"
            raise ProjectError(Finding(code="HR721", what=what, fix="put the crash behind a batch that has rows"))
        for crash in crashes:
            self._dies_at = crash.boundary
            self._wait()
        self._dies_at = None  # Of two crashes the second finds the batch in the sink, and nothing to die in.
        self._wait()

    @property
    def _uses_twice(self) -> bool:
        assert self._running is not None, "it is asked while the query runs"
        return len(self._running.source_names) > len(self.inlets)

    def _wait(self) -> None:
        """Start the query if it does not run, and wait until it has nothing to do, or has died as it was to."""
        if self._running is None:
            self._running = bring_up(
                Request(project=self.project, query=self.query, spark=self.spark, reached=self._reached)
            )
        try:
            self._running.handle.processAllAvailable()
        except Exception:
            died, self._died = self._died, False
            failure = None if died else self._running.failure()
            self._running.clean_up()
            self._running = None
            if not died:
                if failure is None:
                    raise
                raise failure from None
            self._dies_at = None

    def _reached(self, boundary: Boundary, batch: int) -> None:
        if boundary == self._dies_at:
            self._died = True
            raise _Died(f"at {boundary} of batch {batch}, as the timeline says")

    def _stop(self) -> None:
        if self._running is not None:
            with suppress(Exception):
                self._running.handle.stop()
            self._running.clean_up()
            self._running = None

    def _look(self) -> None:
        """Keep what can be seen of the running query alone."""
        running = self._running
        progress = running.handle.lastProgress if running is not None else None
        if progress is not None:
            self.state_rows = sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
        checkpoint = Checkpoint(self._layout.checkpoint)
        last = checkpoint.last_committed
        commit = None if last is None else checkpoint.commit(last)
        if commit is not None and commit.next_watermark_ms > 0:
            self.watermark = datetime(1970, 1, 1) + timedelta(milliseconds=commit.next_watermark_ms)

    def _rows(self) -> ResultRows:
        if isinstance(self.query.sink, Kept):
            return self.query.sink.rows()
        if self._holds is not None:
            return held_rows(self._holds(), self.spark)
        context = sink_context(self.project, self.query, self._layout)
        with reading(self.project, self.spark) as spark:
            snapshot = self.query.sink.read_back(spark, context)
            return collected(snapshot.rows, snapshot.key)

    @property
    def _layout(self) -> QueryLayout:
        return layout_of(self.project, self.query)

    def _number(self) -> int:
        self._files += 1
        return self._files


def _steps(inputs: Mapping[str, Sequence[Item]]) -> list[_Step]:
    """The batches of all inputs by their number, each with the events behind it."""
    steps: list[_Step] = []
    for name, items in inputs.items():
        at = -1
        for item in items:
            if isinstance(item, TimelineEvent):
                if at < 0:
                    what = f"{item} stands before the first batch of '{name}'"
                    raise ProjectError(Finding(code="HR721", what=what, fix="put it behind a batch"))
                steps[at].events.append((name, item))
                continue
            at += 1
            if at == len(steps):
                steps.append(_Step())
            steps[at].rows[name] = item
    if not steps:
        fix = 'give a list of batches for a source: timeline("q", events=[[row, row], [row]])'
        raise ProjectError(Finding(code="HR721", what="the timeline has no batch", fix=fix))
    return steps
