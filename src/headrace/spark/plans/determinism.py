"""What of a plan may answer otherwise when it is asked again: chance, the order of rows, and the first of them.

Some aggregate functions give another value for another order (`first`), others give an array whose elements come in
another order (`collect_list`). The order of an array is no longer seen once it is sorted, counted or searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.plans.analysed import (
    analysed_plan,
    clock_expressions,
    identity,
    in_words,
    may_hold,
    nodes,
    sequence,
)
from headrace.spark.plans.operators import LIMITS
from headrace.spark.plans.plan_rewrite import Tree, column_of, frame_of, stream_tree

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    Traces = frozenset[tuple[str, str]]

_VALUES = {"First", "Last", "AnyValue", "ListAgg", "MaxBy", "MinBy", "Mode", "ApproximatePercentile", "ApproxTopK"}
_ARRAYS = {"CollectList", "CollectSet"}
_ORDERLESS = {"SortArray", "Size", "ArrayContains", "ArrayMin", "ArrayMax", "ArraysOverlap"}
_VALUE, _ARRAY = "value", "array"
_NONE: Traces = frozenset()


@dataclass(frozen=True, kw_only=True)
class Determinism:
    """What the result of a plan depends on apart from its rows, each in Spark's words.

    clocks: expressions that give the time of the batch.
    by_order: aggregates and the like whose value depends on which row comes first.
    limits: operators that keep the first rows alone. A deduplication is none: its duplicates are mostly the same row.
    """

    clocks: tuple[str, ...]
    by_order: tuple[str, ...]
    limits: tuple[str, ...]


def determinism(frame: DataFrame) -> Determinism:
    """Read it off the analysed plan of `frame`."""
    plan = analysed_plan(frame)
    asked = clock_expressions(frame, plan)
    names = {str(node.nodeName()) for node in nodes(plan)}
    if names.isdisjoint(LIMITS) and not ("Aggregate" in names and may_go_by_order(plan)):
        return Determinism(clocks=asked, by_order=(), limits=())
    tree = stream_tree(plan)
    has_limit = any(node.name in LIMITS and node.from_source for node in tree.walk())
    return Determinism(clocks=asked, by_order=order_dependent(tree), limits=("limit",) if has_limit else ())


def may_go_by_order(plan: Any) -> bool:
    """Whether a plan has a function of those; by class, since one has several names, as `first` and `first_value`."""
    return may_hold(plan, _VALUES | _ARRAYS)


def order_dependent(tree: Tree) -> tuple[str, ...]:
    """The expressions because of which the result of a plan depends on the order of rows."""
    if not may_go_by_order(tree.plan):
        return ()
    by_column, used = _trace_columns(tree)
    shown = (by_column.get(identity(attribute), _NONE) for attribute in sequence(tree.plan.output()))
    return tuple(dict.fromkeys(text for traces in (used, *shown) for _, text in sorted(traces)))


def _trace_columns(tree: Tree) -> tuple[dict[int, Traces], Traces]:
    """The traces of each attribute of a node's output, and those that decide which rows there are."""
    by_column: dict[int, Traces] = {}
    used: Traces = _NONE
    for child in tree.below:
        inner, decided = _trace_columns(child)
        by_column.update(inner)
        used |= decided
    if not tree.from_source:
        return by_column, used
    made: dict[int, Traces] = {}
    for expression in sequence(tree.plan.expressions()):
        traces = _traces(expression, by_column)
        if expression.nodeName() == "Alias":
            made[identity(expression)] = traces
        elif expression.nodeName() != "AttributeReference" or tree.name not in ("Project", "Aggregate"):
            used |= traces
    if tree.name == "Aggregate":
        used |= _union(_traces(expression, by_column) for expression in sequence(tree.plan.groupingExpressions()))
    if tree.name == "Union":
        for index, attribute in enumerate(sequence(tree.plan.output())):
            sides = (child.plan.output().apply(index) for child in tree.below)
            made[identity(attribute)] = _union(by_column.get(identity(side), _NONE) for side in sides)
    return {**by_column, **made}, used


def _traces(expression: Any, traces: Mapping[int, Traces]) -> Traces:
    name = str(expression.getClass().getSimpleName())
    if name == "AttributeReference":
        return traces.get(identity(expression), _NONE)
    below = _union(_traces(child, traces) for child in sequence(expression.children()))
    if name in _VALUES:
        return below | {(_VALUE, in_words(expression))}
    if name in _ARRAYS:
        return below | {(_ARRAY, in_words(expression))}
    if name in _ORDERLESS or (name == "ArraySort" and _compares_whole_elements(expression)):
        return frozenset(trace for trace in below if trace[0] != _ARRAY)
    return below


def _compares_whole_elements(sort: Any) -> bool:
    """Whether an ArraySort compares whole elements, and not by a function of the user's."""
    return [str(argument.name()) for argument in sequence(sort.function().arguments())] == ["left", "right"]


def _union(traces: Iterable[Traces]) -> Traces:
    return frozenset().union(*traces)


@dataclass(frozen=True, kw_only=True)
class Limited:
    """The first `most` of `rows`, sorted by `order`."""

    rows: DataFrame
    order: tuple[Column, ...]
    most: int


def find_limit(spark: SparkSession, frame: DataFrame) -> Limited | None:
    """The only limit of a plan, right above a sort over all rows; None where there is another one, or no such sort."""
    limits = [node for node in nodes(analysed_plan(frame)) if node.nodeName() in LIMITS]
    if len(limits) != 1 or limits[0].nodeName() != "GlobalLimit":
        return None
    (limit,) = limits
    sort = limit.child().child() if limit.child().nodeName() == "LocalLimit" else limit.child()
    if sort.nodeName() != "Sort" or not getattr(sort, "global")():
        return None
    return Limited(
        rows=frame_of(spark, sort.child()),
        order=tuple(_sort_column(spark, key) for key in sequence(sort.order())),
        most=int(limit.limitExpr().eval(None)),
    )


def _sort_column(spark: SparkSession, order: Any) -> Column:
    """A column of a sort with its direction, as Window takes it: it does not look into Spark's own SortOrder."""
    direction, nulls = str(order.direction().sql()).lower(), str(order.nullOrdering().sql()).lower().replace(" ", "_")
    ordered: Column = getattr(column_of(spark, order.child()), f"{direction}_{nulls}")()
    return ordered
