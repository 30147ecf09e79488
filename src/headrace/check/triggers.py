"""What is wrong with a query's trigger: what its sources, sink, mode and plan have to be for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.errors import Finding
from headrace.model import Continuous, Default, Every, Once, Project, Query, RealTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark refuses a shorter one. Source: RealTimeTrigger, spark.sql.streaming.realTimeMode.minBatchDuration.
SHORTEST_REAL_TIME_MS = 5_000


def triggers(project: Project, query: Query) -> Iterator[Finding]:
    """What can be seen without Spark."""
    trigger = query.trigger
    if isinstance(trigger, Once):
        yield Finding(
            code="HR257",
            what=f"query '{query.name}' uses the trigger once, which Spark has deprecated: it ignores rate limits",
            fix="use the trigger available-now",
            where=query.where,
        )
    if isinstance(trigger, Continuous):
        yield from _connectors(project, query, "continuous")
        yield Finding(
            code="HR263",
            what=f"query '{query.name}' runs continuously, so a row may come twice after a crash: it is at least once",
            fix="use the trigger every('1 second'), if no row may come twice",
            where=query.where,
        )
        if query.mode == "complete":
            yield _wrong_mode(query, "continuous", "append")
    if isinstance(trigger, RealTime):
        yield from _connectors(project, query, "real_time")
        if query.mode != "update":
            yield _wrong_mode(query, "real_time", "update")
        if trigger.interval.milliseconds < SHORTEST_REAL_TIME_MS:
            yield Finding(
                code="HR262",
                what=f"query '{query.name}' has real-time batches of {trigger.interval}, below Spark's least of 5 s",
                fix="write real_time('5 seconds') or longer: rows do not wait for the end of a batch",
                where=query.where,
            )


def async_progress(query: Query, stateful: bool) -> Iterator[Finding]:
    """What Spark refuses beside async progress tracking. Source: AsyncProgressTrackingMicroBatchExecution."""
    if not query.sink.facts.async_progress:
        return
    why = f"has the trigger {query.trigger}" if not isinstance(query.trigger, (Default, Every)) else ""
    if stateful:
        why = "keeps state"
    if why:
        yield Finding(
            code="HR266",
            what=f"query '{query.name}' has async_progress, and it {why}",
            fix="leave async_progress out: it is for queries without state that make batch after batch",
            where=query.where,
        )


def _connectors(project: Project, query: Query, word: str) -> Iterator[Finding]:
    fix = "use the trigger every('1 second'), or another {}"
    for source in project.sources_of(query):
        if not getattr(source.connector.facts, word):
            yield Finding(
                code="HR261",
                what=f"query '{query.name}' has the trigger {word}, which the source '{source.name}' does not take",
                fix=fix.format("source"),
                where=query.where,
            )
    if not getattr(query.sink.facts, word):
        yield Finding(
            code="HR261",
            what=f"query '{query.name}' has the trigger {word}, which the sink {query.sink_kind} does not take",
            fix=fix.format("sink"),
            where=query.where,
        )


def _wrong_mode(query: Query, word: str, mode: str) -> Finding:
    return Finding(
        code="HR262",
        what=f"query '{query.name}' has the trigger {word} and the output mode {query.mode}",
        fix=f"use the mode {mode}",
        where=query.where,
    )


def cores(project: Project, query: Query, spark: SparkSession) -> Iterator[Finding]:
    """Whether a continuous query's tasks, which never end, find a core each."""
    if not isinstance(query.trigger, Continuous):
        return
    sources = [source.connector for source in project.sources_of(query)]
    wanted = sum(source.parallelism(spark) for source in sources)
    there = int(spark.sparkContext.defaultParallelism)
    if wanted > there:
        yield Finding(
            code="HR264",
            what=f"query '{query.name}' needs {wanted} cores all the time, one a partition, and there are {there}",
            fix=f"give it more cores (master: local[{wanted}] or more executors), or read fewer partitions",
            where=query.where,
        )
