"""The event-time columns that the operators with state of a plan read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.spark.plans import joins_streams, marked, nodes, sequence

_WHOLE_ROWS = ("Deduplicate", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState")


@dataclass(frozen=True, kw_only=True)
class StatefulInput:
    """One input of an operator with state. `columns` are the event-time columns among which Spark looks for the one."""

    operator: str
    columns: tuple[str, ...]


def stateful_inputs(optimised: Any, *, complete: bool) -> Iterator[StatefulInput]:
    """The inputs of all operators with state of an optimised plan.

    complete: the query's mode is complete, in which an aggregation keeps every group and Spark looks for no column.
    """
    for node in nodes(optimised):
        if node.isStreaming():
            for columns in _read(node, complete=complete):
                names = {int(column.exprId().id()): str(column.name()) for column in columns}
                yield StatefulInput(operator=_words(node), columns=tuple(names.values()))


def _read(node: Any, *, complete: bool) -> Iterator[list[Any]]:
    kind = str(node.nodeName())
    if joins_streams(node):
        yield from (marked(sequence(side.output())) for side in (node.left(), node.right()))
    elif kind == "Aggregate" and not complete:
        yield marked(each for each in sequence(node.groupingExpressions()) if each.nodeName() == "AttributeReference")
    elif any(each in kind for each in _WHOLE_ROWS):
        yield marked(sequence(node.children().head().output()))


def _words(node: Any) -> str:
    return "a join of two streams" if joins_streams(node) else str(node.nodeName())
