"""Refusals of operations that have no right answer on a stream, and that Spark's checker lets pass in some mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.stream_operations import Operation, stream_operations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Of each operation the code, what the query does, and the fix.
_LIMIT = (
    "HR223",
    "takes the first rows of a stream, and which come first is left to chance",
    "leave limit out and take the first rows where the result is read; in the mode complete sort before it",
)
_REFUSALS: dict[Operation, tuple[str, str, str]] = {
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


def unsupported(query: Query, frame: DataFrame, *, calls_distinct: bool) -> Iterator[Finding]:
    """What of `frame`, the analysed result of `query`, a stream cannot do; each code once."""
    told = set[str]()
    for operation in stream_operations(frame):
        code, what, fix = _REFUSALS[operation]
        if code in told or _allowed(operation, query, calls_distinct=calls_distinct):
            continue
        told.add(code)
        yield Finding(
            code=code, what=f"query '{query.name}' {what.format(mode=query.mode)}", fix=fix, where=query.where
        )


def _allowed(operation: Operation, query: Query, *, calls_distinct: bool) -> bool:
    if operation == "limit of sorted rows":
        return query.mode == "complete"
    if operation == "deduplication by all columns":
        return not calls_distinct
    return operation == "join of streams" and query.mode == "append"
