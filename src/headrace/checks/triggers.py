"""What is wrong with when a query works: its trigger, sources that keep nothing, tables recomputed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.errors import Finding
from headrace.model import Continuous, Default, Every, Once, Project, Query, RealTime, Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark refuses a shorter one. Source: RealTimeTrigger, spark.sql.streaming.realTimeMode.minBatchDuration.
SHORTEST_REAL_TIME_MS = 5_000
SHORTEST_SECONDS = 1.0


def check_triggers(project: Project, query: Query) -> Iterator[Finding]:
    """Report what can be seen without Spark."""
    trigger = query.trigger
    if isinstance(trigger, Once):
        yield query.finding(
            "HR257",
            "uses the trigger once, which Spark has deprecated: it ignores rate limits",
            "use the trigger available-now",
        )
    if isinstance(trigger, Continuous):
        yield from _check_connectors(project, query, "continuous")
        yield query.finding(
            "HR263",
            "runs continuously, so a row may come twice after a crash: it is at least once",
            "use the trigger every('1 second'), if no row may come twice",
        )
        if query.mode == "complete":
            yield _unfit(query, "continuous and the output mode complete", "use the mode append")
    if isinstance(trigger, RealTime):
        yield from _check_connectors(project, query, "real_time")
        if query.mode != "update":
            yield _unfit(query, f"real_time and the output mode {query.mode}", "use the mode update")
        if trigger.interval.milliseconds < SHORTEST_REAL_TIME_MS:
            yield _unfit(
                query,
                f"real_time with batches of {trigger.interval}, below Spark's least of 5 s",
                "write real_time('5 seconds') or longer: rows do not wait for the end of a batch",
            )


def check_async_progress(query: Query, stateful: bool) -> Iterator[Finding]:
    """Report what Spark refuses with asynchronous progress. Source: AsyncProgressTrackingMicroBatchExecution."""
    if not query.sink.facts.async_progress:
        return
    why = f"has the trigger {query.trigger}" if not isinstance(query.trigger, (Default, Every)) else ""
    if stateful:
        why = "keeps state"
    if why:
        yield query.finding(
            "HR266",
            f"has async_progress, and it {why}",
            "leave async_progress out: it is for queries without state that make batch after batch",
        )


def _check_connectors(project: Project, query: Query, word: str) -> Iterator[Finding]:
    ends = [("source", source.name, source.connector.facts) for source in project.sources_of(query)]
    for kind, name, facts in (*ends, ("sink", query.sink_kind, query.sink.facts)):
        if not getattr(facts, word):
            shown = f"'{name}'" if kind == "source" else name
            problem = f"{word}, which the {kind} {shown} does not take"
            yield _unfit(query, problem, f"use the trigger every('1 second'), or another {kind}")


def _unfit(query: Query, problem: str, fix: str) -> Finding:
    return query.finding("HR261", f"has the trigger {problem}", fix)


def check_cores(project: Project, query: Query, spark: SparkSession) -> Iterator[Finding]:
    """Report a continuous query with more tasks, which never end, than there are cores."""
    if not isinstance(query.trigger, Continuous):
        return
    sources = [source.connector for source in project.sources_of(query)]
    wanted = sum(source.parallelism(spark) for source in sources)
    there = int(spark.sparkContext.defaultParallelism)
    if wanted > there:
        yield query.finding(
            "HR264",
            f"needs {wanted} cores all the time, one a partition, and there are {there}",
            f"give it more cores (master: local[{wanted}] or more executors), or read fewer partitions",
        )


def check_live_sources(project: Project, query: Query, trigger: Trigger, *, begun: bool = False) -> Iterator[Finding]:
    """Report what `query` cannot do with its live sources; `begun`: its checkpoint has batches already."""
    for source in project.sources_of(query):
        if not source.connector.facts.ephemeral:
            continue
        if trigger.ends:
            yield query.finding(
                "HR320",
                f"ends by itself, and the source '{source.name}' gives only what comes while "
                "it runs: it would end with nothing",
                "use the trigger default or every",
            )
        if begun:
            yield query.finding(
                "HR320",
                f"has run before, and the source '{source.name}' cannot resume from its checkpoint",
                "reset the query (headrace reset QUERY), or read from a source that keeps its rows; a sink that "
                "keeps nothing, such as console, needs no checkpoint",
            )


def check_intervals(project: Project) -> Iterator[Finding]:
    """Report tables that would be recomputed without a pause."""
    for table in project.tables.values():
        if table.refresh is not None and table.refresh.seconds < SHORTEST_SECONDS:
            yield table.finding(
                "HR113",
                f"is to be refreshed every {table.refresh}, and the least is 1 second",
                "write refresh: 1 second or longer; a table that changes all the time is a source",
            )


def check_refreshed_tables(project: Project, query: Query, trigger: Trigger) -> Iterator[Finding]:
    """Report why `query` cannot be halted between two batches and continue with another version of a table.

    A run that ends by itself keeps the version that it began with, so nothing is asked of it.
    """
    tables = project.refreshed_tables_of(query)
    if not tables or trigger.ends:
        return
    reads = f"reads the {tables[0].whose}, which is refreshed while it runs,"
    reasons = []
    if isinstance(trigger, (Continuous, RealTime)):
        problem = f"has the trigger {trigger}, which makes no batches for it to change between"
        reasons.append((problem, "use the trigger every('1 second')"))
    if not query.sink.facts.durable:
        problem = f"the sink {query.sink_kind} keeps nothing that a query could resume from"
        reasons.append((problem, "use a sink that lasts, such as files or sqlite"))
    if query.sink.facts.async_progress:
        problem = "has async_progress, so that batches would come again after each refresh"
        reasons.append((problem, "leave async_progress out"))
    for source in project.sources_of(query):
        if source.connector.facts.ephemeral:
            problem = f"the source '{source.name}' cannot resume from where the query halted"
            reasons.append((problem, "read from a source that keeps its rows"))
    for problem, fix in reasons:
        fix = f"{fix}, or leave the {tables[0].word}'s refresh out"
        yield query.finding("HR292", f"{reads} and {problem}", fix)


def check_own_session(project: Project, query: Query, trigger: Trigger) -> Iterator[Finding]:
    """Report features that need the supervisor, for a query that is started in the user's own session."""
    tables = project.refreshed_tables_of(query)
    if tables and not trigger.ends:
        yield query.finding(
            "HR292",
            f"is started in a session of your own, where its {tables[0].whose} cannot be refreshed while it runs",
            "run it by headrace.run(project, spark=spark), or leave its refresh out",
        )
    if query.late:
        yield query.finding(
            "HR268",
            "is started in a session of your own, where its late rows are not kept",
            "run it by headrace.run(project, spark=spark), or leave late out",
        )
