"""The rule that what an operator with state reads has one event-time column, which Spark checks only while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.plans import joins_streams, marked, nodes, sequence

_WHOLE_ROWS = ("Deduplicate", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState")


def event_times(query: Query, optimised: Any) -> Iterator[Finding]:
    """Operators of an optimised plan that Spark would refuse in the first batch."""
    for node in nodes(optimised):
        if not node.isStreaming():
            continue
        for columns in _read(node, complete=query.mode == "complete"):
            names = {int(column.exprId().id()): str(column.name()) for column in columns}
            if len(names) > 1:
                yield Finding(
                    code="HR279",
                    what=f"query '{query.name}' gives an operator with state ({_words(node)}) rows with "
                    f"{len(names)} event-time columns: {', '.join(names.values())}",
                    fix="leave one of them: select only the column, or the window, that the operator goes by, or cast "
                    "the other to STRING",
                    where=query.where,
                )


def _read(node: Any, *, complete: bool) -> Iterator[list[Any]]:
    """For each input of an operator with state, the event-time columns among which Spark looks for the one.

    In complete mode it looks for none in an aggregation, which then keeps every group.
    """
    kind = str(node.nodeName())
    if joins_streams(node):
        yield from (marked(sequence(side.output())) for side in (node.left(), node.right()))
    elif kind == "Aggregate" and not complete:
        yield marked(each for each in sequence(node.groupingExpressions()) if each.nodeName() == "AttributeReference")
    elif any(each in kind for each in _WHOLE_ROWS):
        yield marked(sequence(node.children().head().output()))


def _words(node: Any) -> str:
    return "a join of two streams" if joins_streams(node) else str(node.nodeName())
