"""The stateful operators of a query, and which of them hold rows against the watermark.

Source: Spark's WatermarkSupport, StateStoreSaveExec, SessionWindowStateStoreRestoreExec, BaseStreamingDeduplicateExec
and SymmetricHashJoinExec. A row is late when its event time, or its window's end, is not after the late watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.analysed import ARBITRARY_STATE as ARBITRARY_STATE
from headrace.spark.plans.analysed import identity, is_attribute, is_session, is_stateful, sequence, with_watermark
from headrace.spark.plans.operations import state_watermark
from headrace.spark.plans.plan_rewrite import Tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEDUPLICATIONS = ("Deduplicate", "DeduplicateWithinWatermark")
LIMITS = ("GlobalLimit", "Offset", "Tail")


@dataclass(frozen=True, kw_only=True)
class PlannedOperator:
    """One stateful operator, in the order in which they are met from the result downwards.

    late: for each child, which of its columns is held against the late watermark, if any.
    time: for each child, which of its columns is the event time itself, which a window is not, if it is still there.
    closing: which of the child's columns closes an aggregation's group, if any.
    session: whether the groups are session windows.
    covered: for each child, whether another stateful operator lies below it.
    by_order: whether the result depends on which of its rows came first.
    join: the kind of a join, as SQL says it.
    """

    kind: str
    late: tuple[int | None, ...]
    time: tuple[int | None, ...] = ()
    closing: int | None = None
    session: bool = False
    covered: tuple[bool, ...] = ()
    by_order: bool = False
    join: str = ""


def stateful(tree: Tree) -> Iterator[Tree]:
    """The nodes that keep state when the sources are streams, from the result downwards."""
    if keeps_state(tree):
        yield tree
    for child in tree.below:
        yield from stateful(child)


def keeps_state(tree: Tree) -> bool:
    """Whether a node keeps state when the sources are streams."""
    if tree.name == "Join":
        return all(side.from_source for side in tree.below)
    return tree.from_source and is_stateful(tree.name)


def kind_of(tree: Tree) -> str:
    """The kind of a stateful node; Spark turns SELECT DISTINCT into an aggregation."""
    return "Aggregate" if tree.name == "Distinct" else tree.name


def operators(analysed: Tree, optimised: Tree, *, complete: bool) -> tuple[PlannedOperator, ...]:
    """The stateful operators of an analysed streaming plan.

    The optimised plan shows which of them still have the event-time column: Spark prunes it before a deduplication or
    join that does not name it, and then drops nothing there. An aggregation in complete mode never drops a row, unless
    its groups are sessions.
    """
    nodes, kept = list(stateful(analysed)), list(stateful(optimised))
    same = [kind_of(node) for node in nodes] == [kind_of(node) for node in kept]
    result = []
    for index, node in enumerate(nodes):
        late = tuple(_event_time(node, child) for child in node.below)
        session = any(map(is_session, _groups(node)))
        closing = late[0] if kind_of(node) == "Aggregate" else None
        if same and kind_of(node) != "Aggregate":
            there = [_watermark_of(child) is not None for child in kept[index].below]
            late = tuple(column if has else None for column, has in zip(late, there, strict=True))
        if (complete and kind_of(node) == "Aggregate" and not session) or _takes_all(node):
            late = tuple(None for _ in late)
        result.append(
            PlannedOperator(
                kind=kind_of(node),
                late=late,
                time=tuple(_watermark_of(child, windows=False) for child in node.below),
                closing=closing,
                session=session,
                covered=tuple(any(True for _ in stateful(child)) for child in node.below),
                by_order=_by_order(kept[index] if same else node),
                join=str(node.plan.joinType().sql()) if node.name == "Join" else "",
            )
        )
    return tuple(result)


def evictions(spark: SparkSession, optimised: Tree, evict_ms: int) -> tuple[int, ...]:
    """The watermark by which each stateful operator of a streaming plan lets go, in a batch that has `evict_ms`.

    Rows of a join may be as old as the state that it still keeps, so what lies above it runs behind by that much.
    Source: Spark's WatermarkPropagator and SymmetricHashJoinExec.produceOutputWatermark.
    """
    result: list[int] = []

    def given_out(node: Tree) -> int:
        position = len(result)
        if keeps_state(node):
            result.append(evict_ms)
        below = [given_out(child) for child in node.below if child.from_source]
        watermark = min(below, default=evict_ms)
        if keeps_state(node):
            result[position] = watermark
            if node.name == "Join":
                return _given_out_by_join(jvm_of(spark), node.plan, watermark)
        return watermark

    given_out(optimised)
    return tuple(result)


def _given_out_by_join(jvm: Any, join: Any, watermark: int) -> int:
    kept: list[int] = []
    if jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper.isWatermarkInJoinKeys(join):
        return watermark
    for side, other in ((join.left(), join.right()), (join.right(), join.left())):
        if with_watermark(sequence(side.output())):
            solved = state_watermark(jvm, join, side.outputSet(), other, watermark)
            kept += [] if solved is None else [solved]
    return min(kept, default=watermark)


def _takes_all(node: Tree) -> bool:
    """Whether it is a function over groups whose timeout is not by event time, which drops no row."""
    named = any(kind in node.name for kind in ("GroupsWithState", "GroupsInPandasWithState"))
    return named and str(node.plan.timeout()) != "EventTimeTimeout"


def columns_by_time(tree: Tree) -> tuple[str, ...]:
    """The columns of a result that are computed from the event time by which its topmost operator groups."""
    following = _following(tree)
    return tuple(str(column.name()) for column in sequence(tree.plan.output()) if identity(column) in following)


def _following(tree: Tree) -> set[int]:
    """The attributes that are the event time of the topmost operator's groups, or are computed from it."""
    if keeps_state(tree):
        column = _event_time(tree, tree.below[0])
        ids = set() if column is None else {identity(tree.below[0].plan.output().apply(column))}
    else:
        ids = {id_ for child in tree.below for id_ in _following(child)}
    made = {"Project": "projectList", "Aggregate": "aggregateExpressions"}.get(tree.name)
    for expression in sequence(getattr(tree.plan, made)()) if made else ():
        if any(identity(attribute) in ids for attribute in sequence(expression.references().toSeq())):
            ids.add(identity(expression.toAttribute()))
    return ids


def _by_order(node: Tree) -> bool:
    """Whether a deduplication keeps columns in which the duplicates may differ."""
    if node.name != "Deduplicate":
        return node.name in DEDUPLICATIONS
    keys = {identity(key) for key in sequence(node.plan.keys())}
    return any(identity(attribute) not in keys for attribute in sequence(node.below[0].plan.output()))


def _groups(node: Tree) -> Iterable[Any]:
    return filter(is_attribute, sequence(node.plan.groupingExpressions())) if node.name == "Aggregate" else ()


def _event_time(node: Tree, child: Tree) -> int | None:
    """The position, in the child's output, of the column that the operator holds against the watermark."""
    if node.name != "Aggregate":
        return _watermark_of(child)
    groups = set(map(identity, with_watermark(_groups(node))))
    return next((at for at, column in enumerate(sequence(child.plan.output())) if identity(column) in groups), None)


def _watermark_of(child: Tree, *, windows: bool = True) -> int | None:
    for index, attribute in enumerate(sequence(child.plan.output())):
        if with_watermark([attribute]) and (windows or attribute.dataType().typeName() != "struct"):
            return index
    return None
