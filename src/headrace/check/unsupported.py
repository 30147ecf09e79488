"""Operations that have no right answer on a stream, and that Spark's checker lets pass in some output mode.

Source: Structured Streaming guide, "Unsupported Operations" and "Support matrix for joins in streaming queries".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.plans import analysed_plan, joins_streams, keeps_whole_rows, nodes, sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDER_KEPT = frozenset({"LocalLimit", "Project", "SubqueryAlias"})
_GROUPING_ID = "spark_grouping_id"


def unsupported(query: Query, frame: DataFrame, *, calls_distinct: bool) -> Iterator[Finding]:
    """What of `frame`, the analysed result of `query`, a stream cannot do; each kind once."""
    told = set[str]()
    for node in nodes(analysed_plan(frame)):
        finding = _finding(query, node, calls_distinct) if node.isStreaming() else None
        if finding is not None and finding.code not in told:
            told.add(finding.code)
            yield finding


def _finding(query: Query, node: Any, calls_distinct: bool) -> Finding | None:
    kind = str(node.nodeName())
    if kind == "GlobalLimit" and not (query.mode == "complete" and _sorted(node)):
        return _refusal(
            query,
            "HR223",
            "takes the first rows of a stream, and which come first is left to chance",
            "leave limit out and take the first rows where the result is read; in the mode complete sort before it",
        )
    if kind == "Aggregate" and any(_GROUPING_ID in str(each) for each in sequence(node.groupingExpressions())):
        return _refusal(
            query,
            "HR277",
            "groups a stream by several sets of columns at once (cube, rollup or grouping sets)",
            "write one query for each set of columns",
        )
    if kind == "Distinct" or kind.startswith(("Except", "Intersect")):
        return _refusal(
            query,
            "HR278",
            "takes the rows of a stream as a set (SELECT DISTINCT, UNION without ALL, EXCEPT, INTERSECT or subtract)",
            "for DISTINCT group by the columns and count in the mode update, or use dropDuplicates; for UNION use "
            "UNION ALL; for EXCEPT and INTERSECT a left anti or a left semi join with a table",
        )
    if kind == "Deduplicate" and calls_distinct and keeps_whole_rows(node):
        return _refusal(
            query,
            "HR278",
            "calls distinct on a stream, which would keep every row for ever",
            "use dropDuplicates by the columns that identify a row, the watermark's column among them",
        )
    if joins_streams(node) and query.mode != "append":
        return _refusal(
            query,
            "HR227",
            f"joins two streams in the mode {query.mode}",
            "use the mode append, which is the only one for joins of two streams; to aggregate what was joined, use "
            "windows of the event time",
        )
    return None


def _refusal(query: Query, code: str, what: str, fix: str) -> Finding:
    return Finding(code=code, what=f"query '{query.name}' {what}", fix=fix, where=query.where)


def _sorted(limit: Any) -> bool:
    """Whether the rows that are limited come out of a sort."""
    node = limit.child()
    while node.nodeName() in _ORDER_KEPT:
        node = node.child()
    return bool(node.nodeName() == "Sort")
