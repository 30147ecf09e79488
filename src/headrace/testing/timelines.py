"""A query run over batches that a test gives, through crashes and restarts, and what it holds after each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.arguments import judge_arguments
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.sources import source_of
from headrace.errors import CheckFailed, Finding
from headrace.frames.plan_builder import build, registered_tables
from headrace.generations.register import layout_of
from headrace.markup import table, whole
from headrace.model import Project, Query, Transform
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.jvm.settings import WHOLE_JSON_UTC
from headrace.spark.plans.operators import DEDUPLICATIONS
from headrace.testing.batch_answer import key_of, meaning_of, open_session, own_settings, require_batch_form
from headrace.testing.drivers import TimelineDriver
from headrace.testing.events import Item, steps_of
from headrace.testing.given import Inlet
from headrace.testing.rows import ResultRow, ResultRows, collect_rows, describe, differences, local_rows
from headrace.testing.spark_session import shared_session
from headrace.verifier.answer import BatchAnswer, BatchQuery, Prefix, prefix_of
from headrace.verifier.proof import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(kw_only=True, eq=False)
class TimelineRun:
    """What a query made of a timeline; times are datetimes on the clock of the session's time zone.

    Attributes:
        project: The project with stand-ins for its sources and tables.
        query: The query as it ran.
        steps: What the sink held after each batch and the events behind it.
        watermark: UTC, without a zone; None: none yet.
        state_rows: How many rows its state held at the end.
    """

    project: Project
    query: Query
    steps: list[ResultRows]
    watermark: datetime | None
    state_rows: int
    _meaning: Transform | None
    _inlets: Mapping[str, Inlet]
    _spark: SparkSession
    _home: tempfile.TemporaryDirectory[str]

    def __repr__(self) -> str:
        return f"<timeline of query '{self.query.name}': {len(self.steps)} batches, {len(self.final)} rows>"

    def _repr_html_(self) -> str:
        """Show what the sink held after each batch in a notebook."""
        return whole(
            "".join(
                table(rows.columns, rows, title=f"after batch {number}") for number, rows in enumerate(self.steps, 1)
            )
        )

    def after(self, batch: int) -> ResultRows:
        """Return the rows of the result after a batch and the events behind it.

        Args:
            batch: Its number, from 1 on.

        Returns:
            What the sink held then.

        Raises:
            IndexError: There is no such batch.
        """
        if not 1 <= batch <= len(self.steps):
            raise IndexError(f"the timeline has {len(self.steps)} batches, and none is number {batch}")
        return self.steps[batch - 1]

    @property
    def final(self) -> ResultRows:
        """The rows of the result at the end."""
        return self.steps[-1]

    @property
    def batch(self) -> ResultRows:
        """The answer of the query as a batch over the same rows, without late rows and open groups, as `verify` has it.

        If the test says what the query means, the answer of that over all rows.

        Raises:
            CheckFailed: The query has neither.
        """
        rows, answer = self._answer
        if self._meaning is None:
            require_batch_form(self.query, answer)
        assert rows is not None, "only a state function has none"
        return rows

    @cached_property
    def late(self) -> list[ResultRow]:
        """The rows that were dropped as late, as they were given, in their order.

        Raises:
            CheckFailed: It is not known which.
        """
        _, answer = self._answer
        if answer.incomplete:
            raise CheckFailed(answer.incomplete)
        return list(self._late_rows())

    @property
    def late_schema(self) -> StructType:
        """The columns of all sources; a late row has those of one."""
        from pyspark.sql.types import StructType

        fields = {field.name: field for inlet in self._inlets.values() for field in inlet.schema}
        return StructType(list(fields.values()))

    @cached_property
    def quarantined(self) -> list[str]:
        """The lines of files that broke the schema, if the source quarantines them and is given lines of text."""
        lines: list[str] = []
        with open_session(self.project, self._spark) as spark:
            prefix = self._prefix()
            for inlet in self._inlets.values():
                source = inlet.stand_in
                rejected = source.connector.rejected_rows(spark, prefix.sources[source.name]) if inlet.raw else None
                if rejected is not None:
                    lines += [row["record"] for row in rejected.orderBy("batch").collect()]
        return lines

    @property
    def has_batch_answer(self) -> bool:
        """Whether the result can be compared with a batch answer.

        A state function must not make it, and in update mode a key must say which rows replace which.

        Raises:
            CheckFailed: `batch` fails for another reason.
        """
        _, answer = self._answer
        return (self._meaning is not None or not answer.by_function) and not (
            self.query.mode == "update" and not key_of(self.query)
        )

    @property
    def first_come_first_served(self) -> bool:
        """Whether the order of rows decides by intent: of duplicates, or of rows that replace one another by key."""
        operators = self._answer[1].operators
        replacing = not operators and self.query.mode == "update"
        return replacing or any(operator.kind in DEDUPLICATIONS for operator in operators)

    def require_batch_answer(self) -> None:
        """Compare the result with the batch answer, if it has one.

        Raises:
            AssertionError: They differ; the text has the rows, and what keeps that from being certain.
            CheckFailed: `batch` fails for another reason than that there is no batch answer.
        """
        if not self.has_batch_answer:
            return
        differing = differences(self.batch if self._meaning is None else list(self.batch), self.final)
        if not differing:
            return
        reasons: tuple[Finding, ...] = ()
        if self._answer[1].caveats and self._meaning is None:
            verdict = verify(self.project, self.query.name, spark=self._spark)
            if verdict.state not in ("mismatch", "undecided"):
                return
            reasons = verdict.findings if verdict.state == "undecided" else ()
        problem = f"the result of query '{self.query.name}' is not the batch answer (-) over the same rows"
        raise AssertionError("\n".join([f"{problem}:", describe(differing), *map(str, reasons)]))

    def _prefix(self) -> Prefix:
        layout = layout_of(self.project, self.query)
        last = Checkpoint(layout.checkpoint).last_committed
        assert last is not None, "a batch was waited for"
        return prefix_of(self.project, self.query, layout, last)

    @contextmanager
    def _batch_query(self) -> Iterator[BatchQuery]:
        with open_session(self.project, self._spark) as spark, registered_tables(self.project, self.query, spark):
            layout, through = layout_of(self.project, self.query), self._prefix().through
            yield BatchQuery.read_committed(self.project, self.query, layout, spark, through, key=key_of(self.query))

    @cached_property
    def _answer(self) -> tuple[ResultRows | None, BatchAnswer]:
        """The batch answer; no rows of one that a state function makes, which may be none to Spark."""
        with self._batch_query() as batch_query:
            answer = batch_query.answer()
            frame = answer.frame
            if self._meaning is not None:
                source = partial(batch_query.prefix.read, batch_query.spark, dated=False)
                tables = batch_query.versions.last.tables
                frame = build(self.project, self._meaning, batch_query.spark, source, tables)
            elif answer.by_function:
                return None, answer
            return collect_rows(frame, batch_query.key), answer

    def _late_rows(self) -> Iterator[ResultRow]:
        from pyspark.sql import functions as F

        with self._batch_query() as batch_query:
            spark, prefix = batch_query.spark, batch_query.prefix
            for dropped in batch_query.over(replace(prefix, named=True)).answer().late:
                for inlet in self._inlets.values():
                    stand_in = inlet.stand_in
                    uses = [use for use in prefix.sources if source_of(use) == stand_in.name]
                    shape = stand_in.connector.read(spark, prefix.sources[stand_in.name]).schema
                    mine = dropped.rows.where(F.col("origin.source").isin(uses))
                    line = F.from_json("origin.line", shape, WHOLE_JSON_UTC).alias("row")
                    ordered = mine.orderBy("batch", "origin.number").select(line).select("row.*")
                    types = {field.name: field.dataType for field in shape}
                    for row in local_rows(ordered.select(*[f"`{column}`" for column in inlet.schema.names])):
                        yield ResultRow(dict(zip(inlet.schema.names, row, strict=True)), types)


@judge_arguments
def timeline(
    project: Project,
    query: str,
    *,
    spark: SparkSession | None = None,
    key: Sequence[str] = (),
    batch: bool | str | Callable[..., Any] = True,
    sink: bool | Callable[[], Iterable[Any]] = False,
    given: Mapping[str, Sequence[Item]] | None = None,
    **inputs: Sequence[Item],
) -> TimelineRun:
    """Run `query` over batches of rows and events.

    The first batches of all inputs come together, then the second ones, and so on; an event happens after the batch
    behind which it stands. The query runs as `headrace run` starts it, in a storage of its own.

    Args:
        project: The project of the query.
        query: Its name.
        spark: A session; None: the active one, or a local one for all tests of the process.
        key: The columns that identify a row of the result, if the sink does not say.
        batch: Whether the result is compared with the batch answer at the end. A function of the query's inputs, or a
            SELECT, says what the query means as a batch, for one with a state function.
        sink: False replaces the sink by a table in memory; True keeps the real one, as does a function that returns
            what the real one holds: rows as dicts, or as tuples of equal length.
        given: The inputs by name, as further keyword arguments are.
        **inputs: Batches and events by the name of a source. A batch is what `evaluate` takes as rows, or None.

    Returns:
        The run, with what the sink held after each batch.

    Raises:
        AssertionError: The result is not the batch answer.
        ProjectError: Rows or events do not fit, or an input is unknown.
        CheckFailed: The query has no batch answer to compare with.
        HeadraceError: The query has failed.
    """
    declared = project.query(query)
    session = spark or shared_session()
    meaning = None if isinstance(batch, bool) else meaning_of(project, declared, batch)
    stepped = steps_of({**(given or {}), **inputs})
    home = tempfile.TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True)
    driver = TimelineDriver(project, declared, session, Path(home.name), stepped, key=tuple(key), sink=sink)
    with apply_settings(session, own_settings(project, session)):
        steps = driver.run(stepped)
    run = TimelineRun(
        project=driver.project,
        query=driver.query,
        steps=steps,
        watermark=driver.watermark,
        state_rows=driver.state_rows,
        _meaning=meaning,
        _inlets=driver.inlets,
        _spark=session,
        _home=home,
    )
    if batch:
        run.require_batch_answer()
    return run
