"""A streaming plan in which what a connector makes of a source's rows is taken for the source itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.plan_rewrite import with_children, with_parts
from headrace.spark.plans import analysed_plan, sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Tree:
    """A plan: its classes in pre-order, and its children."""

    plan: Any
    names: tuple[str, ...]
    below: tuple[_Tree, ...]

    @property
    def leaves(self) -> Iterable[Any]:
        if not self.below:
            yield self.plan
        for child in self.below:
            yield from child.leaves


def with_source_leaves(frame: DataFrame, streams: Mapping[str, DataFrame], source_of: Callable[[str], str]) -> Any:
    """The analysed plan of `frame`, in which each source is one leaf with the columns that its connector gives.

    streams: the DataFrame of each connector, by the source's name, over which `frame` is built. source_of: the source
    that the plan's name of a use is of. A connector's part that Spark's analysis has changed stays as it is.
    """
    plan = analysed_plan(frame)
    made = {name: _tree(analysed_plan(stream)).names for name, stream in streams.items()}
    shapes = {name: names for name, names in made.items() if len(names) > 1}
    if not shapes:
        return plan
    return _replaced(frame.sparkSession, _tree(plan), shapes, source_of)


def _tree(plan: Any) -> _Tree:
    below = tuple(_tree(child) for child in sequence(plan.children()))
    names = (str(plan.getClass().getSimpleName()), *(name for child in below for name in child.names))
    return _Tree(plan, names, below)


def _replaced(
    spark: SparkSession, tree: _Tree, shapes: Mapping[str, tuple[str, ...]], source_of: Callable[[str], str]
) -> Any:
    if tree.names in shapes.values():
        leaf = next((each for each in tree.leaves if each.isStreaming()), None)
        name = stream_name(leaf) if leaf is not None else None
        if leaf is not None and name is not None and shapes.get(source_of(name)) == tree.names:
            at = next(at for at in range(leaf.productArity()) if leaf.productElementName(at) == "output")
            return with_parts(spark, leaf, {at: tree.plan.output()})
    below = [_replaced(spark, child, shapes, source_of) for child in tree.below]
    if all(new is child.plan for new, child in zip(below, tree.below, strict=True)):
        return tree.plan
    return with_children(spark, tree.plan, below)


def stream_name(leaf: Any) -> str | None:
    """The name of the source that a streaming leaf reads, as the checkpoint knows it."""
    named = re.search(r'\bname="(\w+)"', str(leaf.treeString()))
    return named[1] if named else None
