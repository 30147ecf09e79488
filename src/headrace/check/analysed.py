"""Findings about an analysed streaming plan: Spark's own checker first, then what Spark does not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.check import bounding
from headrace.check.aggregated import CONDITIONS, aggregated
from headrace.check.determinism import chance, clock_and_order
from headrace.check.event_times import event_times
from headrace.check.joins import joins
from headrace.check.processors import processors
from headrace.check.state_bounds import StateBound, state_bounds, unremoved
from headrace.check.triggers import async_progress
from headrace.check.unsupported import unsupported
from headrace.errors import Finding
from headrace.model import AvailableNow, Continuous, Query
from headrace.model.state_store import PROVIDER_KEY
from headrace.spark.determinism import determinism
from headrace.spark.join_plan import stream_joins
from headrace.spark.kept_state import kept_states
from headrace.spark.messages import finding_of
from headrace.spark.operation_checker import refusal
from headrace.spark.plans import PlanFacts, optimised_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_WATERMARK = "streaming aggregations without watermark"


def analysed(query: Query, frame: DataFrame, facts: PlanFacts, *, calls_distinct: bool = False) -> Iterator[Finding]:
    """Everything that is wrong or noteworthy about `frame`, the analysed result of `query`.

    calls_distinct: its functions use `distinct`, which the plan does not tell from `dropDuplicates`.
    """
    if not facts.streaming:
        yield Finding(
            code="HR232",
            what=f"query '{query.name}' reads no source and is no stream",
            fix="let it read at least one source; a bounded input is declared as a table",
            where=query.where,
        )
        return
    refused = tuple(unsupported(query, frame, calls_distinct=calls_distinct))
    if not refused:
        told = tuple(aggregated(query, frame))
        explained = any(finding.severity == "error" and finding.code in CONDITIONS for finding in told)
        # Of a condition that is not met Spark says only that there is no watermark.
        by_spark = (each for each in _spark_refuses(query, frame) if not (explained and NO_WATERMARK in each.what))
        refused = (*by_spark, *told)
    yield from refused
    yield from async_progress(query, facts.keeps_state)
    if not any(finding.severity == "error" for finding in refused) and (facts.stateful or len(facts.sources) > 1):
        plan = optimised_plan(frame)
        yield from event_times(query, plan)
        yield from joins(query, stream_joins(frame.sparkSession, plan), policy=_policy(frame))
    yield from _named_twice(query, facts)
    yield from _unbounded(query, facts)
    yield from chance(query, facts)
    yield from _endless(query, facts)
    yield from processors(query, facts, frame.sparkSession.conf.get(PROVIDER_KEY, None))


def noteworthy(query: Query, frame: DataFrame, facts: PlanFacts) -> tuple[tuple[StateBound, ...], tuple[Finding, ...]]:
    """How long each operator of `frame` keeps its state, and what stops no start but is good to know before one."""
    states = kept_states(frame)
    with_joins = any(state.kind == "join" for state in states)
    found = stream_joins(frame.sparkSession, optimised_plan(frame)) if with_joins else ()
    notes = (*unremoved(query, states), *clock_and_order(query, facts, determinism(frame)))
    return state_bounds(query, states, found, policy=_policy(frame)), notes


def _spark_refuses(query: Query, frame: DataFrame) -> Iterator[Finding]:
    """What UnsupportedOperationChecker says of the plan in the query's output mode."""
    error = refusal(frame, query.mode, continuous=isinstance(query.trigger, Continuous))
    if error is not None:
        yield finding_of(error, where=query.where, subject=f"query '{query.name}'")


def _policy(frame: DataFrame) -> str:
    return str(frame.sparkSession.conf.get("spark.sql.streaming.multipleWatermarkPolicy", "min")).lower()


def _named_twice(query: Query, facts: PlanFacts) -> Iterator[Finding]:
    """Spark keeps one place in its checkpoint for each name; where rows are quarantined, each needs its own count."""
    for name in sorted({name for name in facts.sources if facts.sources.count(name) > 1}):
        yield Finding(
            code="HR219",
            what=f"query '{query.name}' reads the source '{name}' in {facts.sources.count(name)} places of its plan "
            "and counts its rows on the way, or takes its files away",
            fix="declare the source again under another name for each further place, without clean_source",
            where=query.where,
        )


def _unbounded(query: Query, facts: PlanFacts) -> Iterator[Finding]:
    for operator in facts.stateful:
        if operator.bounded or operator.kind == "aggregation":
            continue
        by = f" by {', '.join(operator.by)}" if operator.by else ""
        yield Finding(
            code="HR240",
            what=f"query '{query.name}' keeps the state of its {operator.kind}{by} indefinitely",
            fix=bounding.fix(operator.marked, operator.times),
            where=query.where,
        )


def _endless(query: Query, facts: PlanFacts) -> Iterator[Finding]:
    if facts.by_clock and isinstance(query.trigger, AvailableNow):
        yield Finding(
            code="HR288",
            what=f"query '{query.name}' has timeouts by the clock, for which Spark makes batches without data, so that "
            "with the trigger available-now it would never end",
            fix="use the trigger once or an interval, or timeouts by event time",
            where=query.where,
        )
