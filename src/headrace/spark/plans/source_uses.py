"""Sources in a plan: those that a query reads in several places, and those that a connector wraps.

Spark keeps one place in its checkpoint for each name, and refuses to start a plan in which a name stands twice.

Spark lists new files, or asks for new offsets, once for each place, so that a row may come to one a batch later than to
the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.sources import use_name
from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.analysed import analysed_plan, nodes, sequence, source_names
from headrace.spark.plans.plan_rewrite import MARK, frame_of, renamed, scala_seq, with_children, with_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Reading = Callable[[str, str], DataFrame]


def apart(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """`frame`, in whose plan no two sources have the same name.

    A source that counts its bad rows keeps its name, for Spark takes a count's name once in a plan; so does one whose
    files are taken away once they are read, for the other place may not have read them.
    """
    plan = analysed_plan(frame)
    names = Counter(source_names(plan)) if plan.isStreaming() else Counter[str]()
    if not any(count > 1 for count in names.values()):
        return frame
    if any(node.nodeName() == "CollectMetrics" or _takes_away(node) for node in nodes(plan)):
        return frame
    return frame_of(spark, _renamed(spark, plan, Counter()))


def _renamed(spark: SparkSession, plan: Any, seen: Counter[str]) -> Any:
    below = list(sequence(plan.children()))
    if below:
        again = [_renamed(spark, child, seen) for child in below]
        same = all(old.equals(new) for old, new in zip(below, again, strict=True))
        return plan if same else with_children(spark, plan, again)
    if not plan.isStreaming():
        return plan
    (name, *_) = source_names(plan) or ("",)
    seen[name] += 1
    if not name or seen[name] == 1:
        return plan
    named = jvm_of(spark).org.apache.spark.sql.catalyst.streaming.UserProvided(use_name(name, seen[name]))
    return plan.withSourceIdentifyingName(named)


def _takes_away(node: Any) -> bool:
    """Whether a node is a source of files that deletes or archives what it has read."""
    if node.nodeName() != "StreamingRelation":
        return False
    options = str(node.dataSource().options()).lower()
    return "cleansource -> archive" in options or "cleansource -> delete" in options


def apart_in_batch(spark: SparkSession, plan: Any, read: Reading, uses: Collection[str]) -> Any:
    """`plan`, in which each further use of a source reads what `read(source, use)` gives, if `uses` holds its name."""
    return _apart_in_batch(spark, plan, read, uses, Counter())


def _apart_in_batch(spark: SparkSession, plan: Any, read: Reading, uses: Collection[str], seen: Counter[str]) -> Any:
    if plan.nodeName() == "SubqueryAlias" and (mark := str(plan.identifier().name())).startswith(MARK):
        name = mark.removeprefix(MARK)
        seen[name] += 1
        use = use_name(name, seen[name])
        return _other(spark, plan, read(name, use)) if use != name and use in uses else plan
    below = list(sequence(plan.children()))
    again = [_apart_in_batch(spark, child, read, uses, seen) for child in below]
    if all(old.equals(new) for old, new in zip(below, again, strict=True)):
        return plan
    return with_children(spark, plan, again)


def _other(spark: SparkSession, mark: Any, frame: DataFrame) -> Any:
    """The rows of `frame` under the attributes of `mark`, as which the plan above knows them."""
    other = analysed_plan(frame)
    project = other.child()
    columns = [
        renamed(spark, given, wanted)
        for given, wanted in zip(sequence(project.projectList()), sequence(mark.output()), strict=True)
    ]
    same = with_parts(spark, project, {0: scala_seq(spark, columns)})
    return with_children(spark, other, [same])


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
