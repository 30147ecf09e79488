"""Sources in a plan: those that a query reads in several places, and those that a connector wraps.

Spark keeps one place in its checkpoint for each name, and refuses to start a plan in which a name stands twice.

Spark lists new files, or asks for new offsets, once for each place, so that a row may come to one a batch later than to
the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.sources import use_name
from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.analysed import analysed_plan, nodes, sequence, source_names
from headrace.spark.plans.plan_rewrite import (
    MARK,
    Tree,
    alias_as,
    frame_of,
    over,
    scala_seq,
    stream_tree,
    with_children,
    with_parts,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Reading = Callable[[str, str], DataFrame]


def rename_repeated_sources(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """`frame`, in whose plan no two sources have the same name.

    A source that counts its bad rows keeps its name, for Spark takes a count's name once in a plan; so does one whose
    files are taken away once they are read, for the other place may not have read them.
    """
    plan = analysed_plan(frame)
    names = Counter(source_names(plan)) if plan.isStreaming() else Counter[str]()
    if not any(count > 1 for count in names.values()):
        return frame
    if any(node.nodeName() == "CollectMetrics" or _removes_files(node) for node in nodes(plan)):
        return frame
    return frame_of(spark, _rename(spark, plan, Counter()))


def _rename(spark: SparkSession, plan: Any, seen: Counter[str]) -> Any:
    below = list(sequence(plan.children()))
    if below:
        return over(spark, plan, [_rename(spark, child, seen) for child in below])
    if not plan.isStreaming():
        return plan
    (name, *_) = source_names(plan) or ("",)
    seen[name] += 1
    if not name or seen[name] == 1:
        return plan
    named = jvm_of(spark).org.apache.spark.sql.catalyst.streaming.UserProvided(use_name(name, seen[name]))
    return plan.withSourceIdentifyingName(named)


def _removes_files(node: Any) -> bool:
    """Whether a node is a source of files that deletes or archives what it has read."""
    if node.nodeName() != "StreamingRelation":
        return False
    options = str(node.dataSource().options()).lower()
    return "cleansource -> archive" in options or "cleansource -> delete" in options


def replace_repeated_sources(
    spark: SparkSession, plan: Any, read: Reading, uses: Collection[str], seen: Counter[str] | None = None
) -> Any:
    """`plan`, in which each further use of a source reads what `read(source, use)` gives, if `uses` holds its name.

    seen: how often each source was met so far.
    """
    seen = Counter() if seen is None else seen
    if plan.nodeName() == "SubqueryAlias" and (mark := str(plan.identifier().name())).startswith(MARK):
        name = mark.removeprefix(MARK)
        seen[name] += 1
        use = use_name(name, seen[name])
        return _under_attributes(spark, plan, read(name, use)) if use != name and use in uses else plan
    return over(
        spark, plan, [replace_repeated_sources(spark, child, read, uses, seen) for child in sequence(plan.children())]
    )


def _under_attributes(spark: SparkSession, mark: Any, frame: DataFrame) -> Any:
    """The rows of `frame` under the attributes of `mark`, as which the plan above knows them."""
    other = analysed_plan(frame)
    project = other.child()
    columns = [
        alias_as(spark, given, wanted)
        for given, wanted in zip(sequence(project.projectList()), sequence(mark.output()), strict=True)
    ]
    same = with_parts(spark, project, {0: scala_seq(spark, columns)})
    return with_children(spark, other, [same])


def with_source_leaves(frame: DataFrame, streams: Mapping[str, DataFrame], source_of: Callable[[str], str]) -> Any:
    """The analysed plan of `frame`, in which each source is one leaf with the columns that its connector gives.

    streams: the DataFrame of each connector, by the source's name, over which `frame` is built. source_of: the source
    that the plan's name of a use is of. A connector's part that Spark's analysis has changed stays as it is.
    """
    plan = analysed_plan(frame)
    made = {name: _shape(stream_tree(analysed_plan(stream))) for name, stream in streams.items()}
    shapes = {name: shape for name, shape in made.items() if len(shape) > 1}
    return _replace_sources(frame.sparkSession, stream_tree(plan), shapes, source_of) if shapes else plan


def _shape(tree: Tree) -> tuple[str, ...]:
    return tuple(node.name for node in tree.walk())


def _replace_sources(
    spark: SparkSession, tree: Tree, shapes: Mapping[str, tuple[str, ...]], source_of: Callable[[str], str]
) -> Any:
    if (shape := _shape(tree)) in shapes.values():
        leaf = next((node.plan for node in tree.walk() if node.from_source and not node.below), None)
        name = stream_name(leaf) if leaf is not None else None
        if leaf is not None and name is not None and shapes.get(source_of(name)) == shape:
            at = next(at for at in range(leaf.productArity()) if leaf.productElementName(at) == "output")
            return with_parts(spark, leaf, {at: tree.plan.output()})
    return over(spark, tree.plan, [_replace_sources(spark, child, shapes, source_of) for child in tree.below])


def stream_name(leaf: Any) -> str | None:
    """The name of the source that a streaming leaf reads, as the checkpoint knows it."""
    named = re.search(r'\bname="(\w+)"', str(leaf.treeString()))
    return named[1] if named else None
