"""The stateful operators of a query, and which of them hold rows against the watermark.

Source: Spark's WatermarkSupport, StateStoreSaveExec, SessionWindowStateStoreRestoreExec, BaseStreamingDeduplicateExec and
SymmetricHashJoinExec. A row is late when its event time, or the end of its window, is not after the late watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.check.plan import WATERMARK_KEY, sequence

SESSION_KEY = "spark.sessionWindow"
ARBITRARY_STATE = ("GroupsWithState", "TransformWithState", "GroupsInPandasWithState")
DEDUPLICATIONS = ("Deduplicate", "DeduplicateWithinWatermark")
LIMITS = ("GlobalLimit", "Offset", "Tail")

Feeds = Callable[[Any], bool]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One stateful operator, in the order in which they are met from the result downwards.

    late: for each child, which of its columns is held against the late watermark, if any.
    closing: which of the child's columns closes an aggregation's group, if any.
    session: whether the groups are session windows.
    covered: for each child, whether another stateful operator lies below it.
    """

    kind: str
    late: tuple[int | None, ...]
    closing: int | None = None
    session: bool = False
    covered: tuple[bool, ...] = ()


def stateful_nodes(plan: Any, feeds: Feeds) -> Iterator[Any]:
    """The nodes of `plan` that keep state when what `feeds` them is a stream."""
    if not feeds(plan):
        return
    if _keeps_state(plan, feeds):
        yield plan
    for child in sequence(plan.children()):
        yield from stateful_nodes(child, feeds)


def kind_of(node: Any) -> str:
    """The kind of a stateful node; Spark turns SELECT DISTINCT into an aggregation."""
    name = str(node.nodeName())
    return "Aggregate" if name == "Distinct" else name


def operators(analysed: Any, optimised: Any, *, complete: bool) -> tuple[Operator, ...]:
    """The stateful operators of an analysed streaming plan.

    The optimised plan tells which of them still have the event-time column: Spark prunes it before a deduplication or
    join that does not name it, and then drops nothing there. An aggregation in complete mode never drops a row, unless
    its groups are sessions.
    """
    nodes, kept = (list(stateful_nodes(plan, _streaming)) for plan in (analysed, optimised))
    same = [kind_of(node) for node in nodes] == [kind_of(node) for node in kept]
    found = []
    for index, node in enumerate(nodes):
        late = tuple(_event_time(node, child) for child in sequence(node.children()))
        session = any(attribute.metadata().contains(SESSION_KEY) for attribute in _groups(node))
        closing = late[0] if node.nodeName() in ("Aggregate", "Distinct") else None
        if same and closing is None:
            there = [_marked(child) is not None for child in sequence(kept[index].children())]
            late = tuple(column if has else None for column, has in zip(late, there, strict=True))
        if complete and closing is not None and not session:
            late = (None,)
        covered = tuple(any(True for _ in stateful_nodes(child, _streaming)) for child in sequence(node.children()))
        found.append(Operator(kind=kind_of(node), late=late, closing=closing, session=session, covered=covered))
    return tuple(found)


def _keeps_state(node: Any, feeds: Feeds) -> bool:
    name = node.nodeName()
    if name == "Join":
        return feeds(node.left()) and feeds(node.right())
    return name in ("Aggregate", "Distinct", *DEDUPLICATIONS) or any(each in name for each in ARBITRARY_STATE)


def _streaming(node: Any) -> bool:
    return bool(node.isStreaming())


def _groups(node: Any) -> Iterator[Any]:
    if node.nodeName() == "Aggregate":
        for expression in sequence(node.groupingExpressions()):
            if expression.nodeName() == "AttributeReference":
                yield expression


def _event_time(node: Any, child: Any) -> int | None:
    """The position, in the child's output, of the column that the operator holds against the watermark."""
    if node.nodeName() != "Aggregate":
        return _marked(child)
    marked = {int(group.exprId().id()) for group in _groups(node) if group.metadata().contains(WATERMARK_KEY)}
    for index, attribute in enumerate(sequence(child.output())):
        if int(attribute.exprId().id()) in marked:
            return index
    return None


def _marked(child: Any) -> int | None:
    for index, attribute in enumerate(sequence(child.output())):
        if attribute.metadata().contains(WATERMARK_KEY):
            return index
    return None
