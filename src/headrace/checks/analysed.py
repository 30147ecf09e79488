"""Findings about an analysed streaming plan: Spark's own checker first, then what Spark does not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.checks.state_bounds import POLICY, StateBound, check_joins, check_unbounded_functions, state_bounds
from headrace.checks.triggers import check_async_progress
from headrace.checks.user_functions import check_chance, check_clock_and_order
from headrace.errors import Finding
from headrace.findings import Severity
from headrace.model import AvailableNow, Continuous, Query
from headrace.model.state_store import PROVIDER_KEY, PROVIDERS
from headrace.spark.messages.refusals import finding_of
from headrace.spark.plans import operations
from headrace.spark.plans.analysed import PlanFacts, analysed_plan, optimised_plan
from headrace.spark.plans.determinism import determinism
from headrace.spark.plans.kept_state import kept_states, stateful_inputs
from headrace.spark.plans.python_functions import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_WATERMARK = "streaming aggregations without watermark"
_STATEFUL_FUNCTIONS = "use Spark's own aggregate functions, or keep what the function needs by applyInPandasWithState"
# Of each operation the code, what the query does, and the fix.
_LIMIT = (
    "HR223",
    "takes the first rows of a stream, and which come first is left to chance",
    "leave limit out and take the first rows where the result is read; in the mode complete sort before it",
)
_REFUSALS: dict[operations.Operation, tuple[str, str, str]] = {
    "limit": _LIMIT,
    "limit of sorted rows": _LIMIT,
    "grouping sets": (
        "HR277",
        "groups a stream by several sets of columns at once (cube, rollup or grouping sets)",
        "write one query for each set of columns",
    ),
    "set of rows": (
        "HR278",
        "takes the rows of a stream as a set (SELECT DISTINCT, UNION without ALL, EXCEPT, INTERSECT or subtract)",
        "for DISTINCT group by the columns and count in the mode update, or use dropDuplicates; for UNION use "
        "UNION ALL; for EXCEPT and INTERSECT a left anti or a left semi join with a table",
    ),
    "deduplication by all columns": (
        "HR278",
        "calls distinct on a stream, which would keep every row indefinitely",
        "use dropDuplicates by the columns that identify a row, the watermark's column among them",
    ),
    "join of streams": (
        "HR227",
        "joins two streams in the mode {mode}",
        "use the mode append, which is the only one for joins of two streams; to aggregate what was joined, use "
        "windows of the event time",
    ),
}


def check_analysed(
    query: Query, frame: DataFrame, facts: PlanFacts, *, calls_distinct: bool = False
) -> Iterator[Finding]:
    """Report everything that is wrong or noteworthy about `frame`, the analysed result of `query`.

    calls_distinct: its functions use `distinct`, which looks like `dropDuplicates` in the plan.
    """
    if not facts.streaming:
        yield query.finding(
            "HR252",
            "reads no source and is not a stream",
            "let it read at least one source; a bounded input is declared as a table",
        )
        return
    for name in dict.fromkeys(name for name in frame.columns if frame.columns.count(name) > 1):
        if query.sink.facts.durable:
            fix = "give each column a name of its own in the last select: AS name"
            yield query.finding("HR404", f"has a result with two columns '{name}'", fix)
    refused = tuple(check_operations(query, frame, calls_distinct=calls_distinct))
    if not refused:
        grouped = tuple(operations.aggregations(frame))
        conditions = [finding for aggregation in grouped for finding in _check_cleaning(query, aggregation)]
        # Of a condition that is not met Spark says only that there is no watermark.
        explained = any(finding.severity == "error" for finding in conditions)
        error = operations.refusal(frame, query.mode, continuous=isinstance(query.trigger, Continuous))
        by_spark = [] if error is None else [finding_of(error, where=query.where, subject=query.whose)]
        if explained:
            by_spark = [aggregation for aggregation in by_spark if NO_WATERMARK not in aggregation.what]
        refused = (*by_spark, *_check_functions(query, frame, grouped), *conditions)
    yield from refused
    yield from check_async_progress(query, facts.keeps_state)
    if not any(finding.severity == "error" for finding in refused) and (facts.stateful or len(facts.sources) > 1):
        plan = optimised_plan(frame)
        yield from check_event_times(query, plan)
        yield from check_joins(query, operations.stream_joins(frame.sparkSession, plan), policy=_policy(frame))
    yield from _check_facts(query, facts)
    yield from check_processors(query, facts, frame.sparkSession.conf.get(PROVIDER_KEY, None))
    if facts.processors:
        yield from check_lifetimes(query, facts, frame)


def describe_state(
    query: Query, frame: DataFrame, facts: PlanFacts
) -> tuple[tuple[StateBound, ...], tuple[Finding, ...]]:
    """Return how long each operator of `frame` keeps its state, and findings that stop no start."""
    states = kept_states(frame)
    with_joins = any(state.kind == "join" for state in states)
    stream_joins = operations.stream_joins(frame.sparkSession, optimised_plan(frame)) if with_joins else ()
    notes = (*check_unbounded_functions(query, states), *check_clock_and_order(query, facts, determinism(frame)))
    return state_bounds(query, states, stream_joins, policy=_policy(frame)), notes


def _policy(frame: DataFrame) -> str:
    return str(frame.sparkSession.conf.get(POLICY, "min")).lower()


def _check_facts(query: Query, facts: PlanFacts) -> Iterator[Finding]:
    # Spark keeps one place in its checkpoint for each name; where rows are quarantined, each needs its own count.
    for name in sorted({name for name in facts.sources if facts.sources.count(name) > 1}):
        yield query.finding(
            "HR219",
            f"reads the source '{name}' in {facts.sources.count(name)} places of its plan "
            "and counts its rows on the way, or takes its files away",
            "declare the source again under another name for each further place, without clean_source",
        )
    for operator in facts.endless:
        by = f" by {', '.join(operator.by)}" if operator.by else ""
        yield query.finding(
            "HR240",
            f"keeps the state of its deduplication{by} indefinitely",
            fix_for_unbounded(operator.marked, operator.times),
        )
    yield from check_chance(query, facts)
    if facts.by_clock and isinstance(query.trigger, AvailableNow):
        yield query.finding(
            "HR261",
            "has timeouts by the clock, for which Spark makes batches without data, so that "
            "with the trigger available-now it would never end",
            "use an interval, as every('10 seconds'), or timeouts by event time",
        )


def check_event_times(query: Query, optimised: Any) -> Iterator[Finding]:
    """Report operators of an optimised plan that Spark would refuse in the first batch."""
    for reader in stateful_inputs(optimised, complete=query.mode == "complete"):
        if len(reader.columns) > 1:
            yield query.finding(
                "HR279",
                f"gives an operator with state ({reader.operator}) rows with "
                f"{len(reader.columns)} event-time columns: {', '.join(reader.columns)}",
                "leave one of them: select only the column, or the window, that the operator goes by, or cast "
                "the other to STRING",
            )


def check_operations(query: Query, frame: DataFrame, *, calls_distinct: bool) -> Iterator[Finding]:
    """Report what of `frame`, the analysed result of `query`, a stream cannot do; each code once."""
    reported = set[str]()
    allowed = {
        "limit of sorted rows": query.mode == "complete",
        "deduplication by all columns": not calls_distinct,
        "join of streams": query.mode == "append",
    }
    for operation in operations.stream_operations(frame):
        code, problem, fix = _REFUSALS[operation]
        if code in reported or allowed.get(operation, False):
            continue
        reported.add(code)
        yield query.finding(code, problem.format(mode=query.mode), fix)


def check_processors(query: Query, facts: PlanFacts, provider: str | None) -> Iterator[Finding]:
    """Report what is wrong with the stateful processors of `query`, whose state `provider` would keep."""
    for processor in facts.processors:
        mode = processor.mode.lower()
        faults = [
            (
                "HR227",
                mode != query.mode and query.mode != "complete",
                f"gives its rows in {mode} mode, and the query's mode is {query.mode}",
                "give both the same mode",
            ),
            (
                "HR221",
                processor.time == "EventTime" and not processor.has_watermark,
                "goes by event time, and no watermark says how far that is",
                "give the source a watermark, and keep its column in what is grouped",
            ),
            (
                "HR284",
                processor.begins_with_stream,
                "takes its initial state from a stream",
                "take it from a table of the project",
            ),
            (
                "HR283",
                provider != PROVIDERS["rocksdb"],
                "keeps several states for a key, which RocksDB alone can",
                "write state_store: {provider: rocksdb} for this target, or leave the provider out",
            ),
        ]
        for code, is_wrong, problem, fix in faults:
            if is_wrong:
                problem = f"query '{query.name}': transformWithState {problem}"
                yield Finding(code=code, what=problem, fix=fix, where=query.where)


def check_lifetimes(query: Query, facts: PlanFacts, frame: DataFrame) -> Iterator[Finding]:
    """Report states with a time to live under a time mode that has none, which Spark refuses in the first batch.

    Source: StatefulProcessorHandleImpl.validateTTLConfig. The `init` of each processor, called on a
    copy, says what it keeps; one whose `init` needs more is left to Spark.
    """
    if all(processor.time == "ProcessingTime" for processor in facts.processors):
        return
    for function in functions(analysed_plan(frame)).values():
        held = getattr(function.function, "__self__", None)
        processor, mode = getattr(held, "_stateful_processor", None), str(getattr(held, "_time_mode", ""))
        if processor is None or mode.lower() == "processingtime":
            continue
        asked = _Asked()
        try:
            processor.init(asked)
        except Exception:  # whatever a function of the user's may raise
            continue
        if asked.lasting:
            yield Finding(
                code="HR289",
                what=f"query '{query.name}': {type(processor).__name__} gives a time to live to "
                f"{', '.join(map(repr, asked.lasting))}, and transformWithState has the timeMode '{mode}'",
                fix="write timeMode='ProcessingTime'; or leave ttlDurationMs out, and clear the state by a timer",
                where=query.where,
            )


class _Asked:
    """A handle, and any state that it gives, that notes which states get a time to live."""

    def __init__(self) -> None:
        self.lasting: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def record_call(*arguments: Any, **options: Any) -> _Asked:
            # The last argument of all that make a state: getValueState, getListState and getMapState.
            positions = {"getValueState": 2, "getListState": 2, "getMapState": 3}
            lifetime = options.get("ttlDurationMs", arguments[positions.get(name, 0) :][:1] if name in positions else 0)
            if name in positions and lifetime and lifetime != (None,):
                self.lasting.append(str(options.get("stateName", arguments[0] if arguments else "?")))
            return self

        return record_call


def _check_functions(query: Query, frame: DataFrame, grouped: Sequence[operations.Aggregation]) -> Iterator[Finding]:
    """Report what Spark refuses only when the first batch is planned."""
    whats = [
        f"aggregates by the Python function {name}, which a stream cannot do"
        for aggregation in grouped
        for name in dict.fromkeys(aggregation.python)
    ]
    whats += [
        f"uses {method}, which in a stream is given a group's rows of one batch only"
        for method in dict.fromkeys(operations.grouped_functions(frame))
    ]
    for problem in whats:
        yield query.finding("HR226", problem, _STATEFUL_FUNCTIONS)
    if any(aggregation.sessions_alone for aggregation in grouped):
        yield query.finding(
            "HR226",
            "groups by a session window alone, which a stream cannot do",
            "group by one more column; use a constant one for sessions over all rows",
        )


def _check_cleaning(query: Query, aggregation: operations.Aggregation) -> Iterator[Finding]:
    """Report which of the guide's four conditions for cleaning state is not met, or that there is no watermark.

    Source: Structured Streaming guide, "Conditions for watermarking to clean aggregation state". Append mode gives a
    row only when its group is finished, so there Spark refuses what in other modes only keeps its state.
    """
    on = " and ".join(f"'{column}'" for column in aggregation.watermarks)
    kept = "no group ever ends" if query.mode == "append" else "the state of no group is ever cleaned"
    severity: Severity = "warning"
    if query.mode == "complete":
        if not on:
            return
        problem = f"runs in complete mode, which keeps every group, so the watermark on {on} cleans no state"
        fix, severity = "use the mode update or append to let go of groups that the watermark has passed", "note"
    elif aggregation.bounded or not (aggregation.by or query.mode == "append"):
        return
    elif not on and aggregation.later:
        problem = f"puts a watermark on '{aggregation.later[-1]}' after its aggregation, which cannot use it: {kept}"
        fix = "put it on before: at the source's declaration, or by withWatermark in front of groupBy"
    elif on and aggregation.times and not set(aggregation.times) & set(aggregation.watermarks):
        times = " and ".join(f"'{column}'" for column in aggregation.times)
        problem = f"groups by the time {times}, and its watermark is on {on}: {kept}"
        fix = f"put the watermark on {times}, or group by {on} or a window of it"
    elif on:
        by = f"groups by {', '.join(aggregation.by)}" if aggregation.by else "groups by nothing"
        problem = f"{by}, and neither by {on}, which has the watermark, nor by a window of it: {kept}"
        fix = f"group by {on} or window({aggregation.watermarks[0]}, ...) as well"
        fix, severity = fix + (", or use the mode update or complete" if query.mode == "append" else ""), "note"
    else:
        if aggregation.by:
            problem = f"keeps the state of its aggregation by {', '.join(aggregation.by)} indefinitely"
            yield query.finding("HR240", problem, fix_for_unbounded((), aggregation.given), severity="note")
        return
    yield query.finding("HR271", problem, fix, severity="error" if query.mode == "append" else severity)


def fix_for_unbounded(marked: Sequence[str], times: Sequence[str]) -> str:
    """Return what to do about an operator whose rows have these columns with a watermark, and these timestamps."""
    if marked:
        return f"use {marked[0]}, which has the watermark, or a window of it, in the operation as well"
    if times:
        columns = " or ".join(times[:3])
        return f"give the source a watermark on {columns}, and use that column, or a window of it, in the operation"
    return "give the source a column of event time with a watermark, and use it, or a window of it, in the operation"
