"""Spark's own check of a streaming plan, made before the start, and operations that it lets pass although no answer is
right.

Source: Structured Streaming guide, "Unsupported Operations" and "Support matrix for joins in streaming queries".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.analysed import analysed_plan, joins_streams, keeps_whole_rows, nodes, sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Operation = Literal[
    "limit", "limit of sorted rows", "grouping sets", "set of rows", "deduplication by all columns", "join of streams"
]
_ORDER_KEPT = frozenset({"LocalLimit", "Project", "SubqueryAlias"})
_GROUPING_ID = "spark_grouping_id"


def refusal(frame: DataFrame, mode: str, *, continuous: bool = False) -> Exception | None:
    """What Spark would raise when `frame` is started in the output mode `mode`; None: it would start."""
    sql = jvm_of(frame.sparkSession).org.apache.spark.sql
    output_mode = getattr(sql.streaming.OutputMode, mode.capitalize())()
    checker = sql.catalyst.analysis.UnsupportedOperationChecker
    check = checker.checkForContinuous if continuous else checker.checkForStreaming
    try:
        check(analysed_plan(frame), output_mode)
    except Exception as error:
        return error
    return None


def stream_operations(frame: DataFrame) -> tuple[Operation, ...]:
    """Which of them the analysed plan of `frame` has on streams, from the result downwards, each kind once."""
    found = (_operation(node) for node in nodes(analysed_plan(frame)) if node.isStreaming())
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _operation(node: Any) -> Operation | None:
    kind = str(node.nodeName())
    if kind == "GlobalLimit":
        return "limit of sorted rows" if _sorted(node) else "limit"
    if kind == "Aggregate" and any(_GROUPING_ID in str(each) for each in sequence(node.groupingExpressions())):
        return "grouping sets"
    if kind == "Distinct" or kind.startswith(("Except", "Intersect")):
        return "set of rows"
    if kind == "Deduplicate" and keeps_whole_rows(node):
        return "deduplication by all columns"
    return "join of streams" if joins_streams(node) else None


def _sorted(limit: Any) -> bool:
    """Whether the rows that are limited come out of a sort."""
    node = limit.child()
    while node.nodeName() in _ORDER_KEPT:
        node = node.child()
    return bool(node.nodeName() == "Sort")
