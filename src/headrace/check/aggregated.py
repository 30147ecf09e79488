"""What is wrong or noteworthy about the aggregations of a query, beyond what Spark's checker says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.errors import Finding
from headrace.findings import Severity
from headrace.model import Query
from headrace.spark.plans.aggregations import Aggregation, aggregations, grouped_functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONDITIONS = frozenset({"HR270", "HR271", "HR272", "HR273"})
_STATEFUL_FUNCTIONS = "use Spark's own aggregate functions, or keep what the function needs by applyInPandasWithState"


def aggregated(query: Query, frame: DataFrame) -> Iterator[Finding]:
    """The findings about `frame`, the analysed result of `query`."""
    for aggregation in aggregations(frame):
        yield from _impossible(query, aggregation)
        yield from _uncleaned(query, aggregation)
    for method in dict.fromkeys(grouped_functions(frame)):
        yield Finding(
            code="HR225",
            what=f"query '{query.name}' uses {method}, which in a stream is given a group's rows of one batch only",
            fix=_STATEFUL_FUNCTIONS,
            where=query.where,
        )


def _impossible(query: Query, aggregation: Aggregation) -> Iterator[Finding]:
    """What Spark refuses only when the first batch is planned."""
    for name in dict.fromkeys(aggregation.python):
        yield Finding(
            code="HR225",
            what=f"query '{query.name}' aggregates by the Python function {name}, which a stream cannot do",
            fix=_STATEFUL_FUNCTIONS,
            where=query.where,
        )
    if aggregation.sessions_alone:
        yield Finding(
            code="HR226",
            what=f"query '{query.name}' groups by a session window alone, which a stream cannot do",
            fix="group by one more column; a constant one will do where the sessions are those of everybody",
            where=query.where,
        )


def _uncleaned(query: Query, aggregation: Aggregation) -> Iterator[Finding]:
    """Which of the guide's four conditions for cleaning state is not met, or that there is no watermark at all.

    Source: Structured Streaming guide, "Conditions for watermarking to clean aggregation state". Append mode gives a
    row only when its group is finished, so there Spark refuses what in other modes only keeps its state.
    """
    on = " and ".join(f"'{column}'" for column in aggregation.watermarks)
    kept = "no group ever ends" if query.mode == "append" else "the state of no group is ever cleaned"
    if query.mode == "complete":
        if on:
            yield _finding(
                query,
                "HR270",
                what=f"runs in complete mode, which keeps every group, so the watermark on {on} cleans no state",
                fix="use the mode update or append to let go of groups that the watermark has passed",
                severity="note",
            )
    elif aggregation.bounded or not (aggregation.by or query.mode == "append"):
        return
    elif not on and aggregation.later:
        yield _finding(
            query,
            "HR273",
            what=f"puts a watermark on '{aggregation.later[-1]}' after its aggregation, which cannot use it: {kept}",
            fix="put it on before: at the source's declaration, or by withWatermark in front of groupBy",
            severity="warning",
        )
    elif on and aggregation.times and not set(aggregation.times) & set(aggregation.watermarks):
        times = " and ".join(f"'{column}'" for column in aggregation.times)
        yield _finding(
            query,
            "HR272",
            what=f"groups by the time {times}, and its watermark is on {on}: {kept}",
            fix=f"put the watermark on {times}, or group by {on} or a window of it",
            severity="warning",
        )
    elif on:
        by = f"groups by {', '.join(aggregation.by)}" if aggregation.by else "groups by nothing"
        yield _finding(
            query,
            "HR271",
            what=f"{by}, and neither by {on}, which has the watermark, nor by a window of it: {kept}",
            fix=f"group by {on} or window({aggregation.watermarks[0]}, ...) as well"
            + (", or use the mode update or complete" if query.mode == "append" else ""),
            severity="note",
        )
    elif aggregation.by:
        yield Finding(
            code="HR240",
            what=f"query '{query.name}' keeps the state of its aggregation by {', '.join(aggregation.by)} indefinitely",
            fix=bounding_fix((), aggregation.given),
            where=query.where,
            severity="note",
        )


def _finding(query: Query, code: str, *, what: str, fix: str, severity: Severity) -> Finding:
    worst: Severity = "error" if query.mode == "append" else severity
    return Finding(code=code, what=f"query '{query.name}' {what}", fix=fix, where=query.where, severity=worst)


def bounding_fix(marked: Sequence[str], times: Sequence[str]) -> str:
    """What to do about an operator whose rows have these columns with a watermark, and these timestamps."""
    if marked:
        return f"use {marked[0]}, which has the watermark, or a window of it, in the operation as well"
    if times:
        known = " or ".join(times[:3])
        return f"give the source a watermark on {known}, and use that column, or a window of it, in the operation"
    return "give the source a column of event time with a watermark, and use it, or a window of it, in the operation"
