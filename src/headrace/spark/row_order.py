"""Which values of a result depend on the order in which rows come.

Some aggregate functions give another value for another order (`first`), others give an array whose elements come in
another order (`collect_list`). The order of an array is no longer seen once it is sorted, counted or searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.spark.plan_rewrite import Tree, identity
from headrace.spark.plans import may_hold, sequence

if TYPE_CHECKING:
    Traces = frozenset[tuple[str, str]]

_VALUES = frozenset(
    {"First", "Last", "AnyValue", "ListAgg", "MaxBy", "MinBy", "Mode", "ApproximatePercentile", "ApproxTopK"}
)
_ARRAYS = frozenset({"CollectList", "CollectSet"})
_ORDERLESS = frozenset({"SortArray", "Size", "ArrayContains", "ArrayMin", "ArrayMax", "ArraysOverlap"})
_VALUE, _ARRAY = "value", "array"
_NONE: Traces = frozenset()


def may_go_by_order(plan: Any) -> bool:
    """Whether a plan has a function of those; by class, since one has several names, as `first` and `first_value`."""
    return may_hold(plan, _VALUES | _ARRAYS)


def by_order(tree: Tree) -> tuple[str, ...]:
    """The expressions because of which the result of a plan depends on the order of rows."""
    if not may_go_by_order(tree.plan):
        return ()
    known, used = _followed(tree)
    shown = (known.get(identity(each), _NONE) for each in sequence(tree.plan.output()))
    return tuple(dict.fromkeys(text for traces in (used, *shown) for _, text in sorted(traces)))


def _followed(tree: Tree) -> tuple[dict[int, Traces], Traces]:
    """The traces of each attribute of a node's output, and those that decide which rows there are."""
    known: dict[int, Traces] = {}
    used: Traces = _NONE
    for child in tree.below:
        inner, decided = _followed(child)
        known.update(inner)
        used |= decided
    if not tree.from_source:
        return known, used
    made: dict[int, Traces] = {}
    for expression in sequence(tree.plan.expressions()):
        traces = _traces(expression, known)
        if expression.nodeName() == "Alias":
            made[identity(expression)] = traces
        elif expression.nodeName() != "AttributeReference" or tree.name not in ("Project", "Aggregate"):
            used |= traces
    if tree.name == "Aggregate":
        used |= _union(_traces(each, known) for each in sequence(tree.plan.groupingExpressions()))
    if tree.name == "Union":
        for index, attribute in enumerate(sequence(tree.plan.output())):
            sides = (child.plan.output().apply(index) for child in tree.below)
            made[identity(attribute)] = _union(known.get(identity(side), _NONE) for side in sides)
    return {**known, **made}, used


def _traces(expression: Any, known: Mapping[int, Traces]) -> Traces:
    name = str(expression.getClass().getSimpleName())
    if name == "AttributeReference":
        return known.get(identity(expression), _NONE)
    below = _union(_traces(child, known) for child in sequence(expression.children()))
    if name in _VALUES:
        return below | {(_VALUE, str(expression))}
    if name in _ARRAYS:
        return below | {(_ARRAY, str(expression))}
    if name in _ORDERLESS or (name == "ArraySort" and _whole(expression)):
        return frozenset(trace for trace in below if trace[0] != _ARRAY)
    return below


def _whole(sort: Any) -> bool:
    """Whether an ArraySort compares whole elements, and not by a function of the user's."""
    return [str(each.name()) for each in sequence(sort.function().arguments())] == ["left", "right"]


def _union(traces: Iterable[Traces]) -> Traces:
    return frozenset().union(*traces)
