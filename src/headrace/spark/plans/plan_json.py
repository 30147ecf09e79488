"""Spark's optimised plan of a streaming query as a Python tree, read in one call to the JVM.

The analysed plan would not do: what Spark keeps as state follows the optimised one, in which columns that are not read
are gone and a WHERE is part of a join. Source: TreeNode.toJSON, IncrementalExecution and MicroBatchExecution of Spark.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.spark.jvm.gateway import gateway_with_callbacks, jvm_of
from headrace.spark.plans.analysed import identity, nodes, sequence
from headrace.spark.plans.plan_rewrite import frame_of, optimise
from headrace.spark.plans.source_uses import stream_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAMS = ("StreamingRelation", "StreamingRelationV2", "StreamingDataSourceV2Relation")
# The expressions that read the clock, and whether each has a time zone.
_CLOCK = {"CurrentTimestamp": False, "Now": False, "CurrentDate": True, "LocalTimestamp": True}
# What a JSON leaves out and is not needed, or is read elsewhere.
_KNOWN_LOST = {
    "dataSource",
    "sourceIdentifyingName",
    "source",
    "v1Relation",
    "table",
    "extraOptions",
    "catalog",
    "identifier",
    "relation",
    "catalogTable",
    "stream",
    "metadataPath",
    "rdd",
    "data",
    "outputPartitioning",
    "outputOrdering",
    "session",
    "originStats",
    "originConstraints",
    "func",
    "value",
    "delay",
    "unrequiredChildIndex",
    "evalContext",
    "evalMode",
    "timeZoneId",
    "replacement",
    "hint",
}
# Rows that stand in the code, and what PySpark puts around them.
_IN_CODE = ("ParallelCollectionRDD", "MapPartitionsRDD", "PythonRDD", "SQLExecutionRDD")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a plan or of an expression: its class, its other arguments, and its children.

    Expressions among the arguments are nodes as well, or lists of them.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    children: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """This node and its children's, without the expressions among its arguments."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def streaming(self) -> bool:
        """Whether rows of a stream pass through it."""
        return any(node.name in STREAMS for node in self.walk())


@dataclass(frozen=True, kw_only=True)
class StaticInput:
    """A bounded input of a plan: what it is, and where or which rows it is made of.

    rows: a digest of the rows where they stand in the plan itself; paths: the files that it reads; source: the name of
    a data source that is written in Python.
    """

    kind: str
    rows: str | None = None
    paths: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class PlanTree:
    """An optimised streaming plan.

    inputs: for each of its leaves, by the identity of its first column, the name of the stream or the bounded input.
    delays: milliseconds of each watermark, in the plan's order.
    """

    root: Node
    inputs: Mapping[int, str | StaticInput]
    delays: tuple[int, ...]


def plan_tree(spark: SparkSession, analysed: Any) -> PlanTree:
    """The optimised plan of an analysed one, with the clock left in it by name."""
    plan = optimise(spark, _with_clock(spark, analysed))
    root = _Lost(tries="try_" in str(plan.treeString())).restore(tree_of(json.loads(plan.toJSON())), lambda: plan)
    return PlanTree(root=root, inputs=dict(_inputs(spark, plan)), delays=tuple(_delays(spark, plan, root)))


def tree_of(listed: list[dict[str, Any]]) -> Node:
    """The tree that TreeNode.toJSON lists, each node before its children."""
    node, rest = _node(listed, 0)
    assert rest == len(listed), "a list of nodes holds one tree"
    return node


def _node(listed: list[dict[str, Any]], at: int) -> tuple[Node, int]:
    node = dict(listed[at])
    name = str(node.pop("class")).rpartition(".")[2]
    children, at = [], at + 1
    for _ in range(int(node.pop("num-children"))):
        child, at = _node(listed, at)
        children.append(child)
    return Node(name=name, arguments={key: _value(value) for key, value in node.items()}, children=tuple(children)), at


def _value(value: Any) -> Any:
    if isinstance(value, list) and value:
        first = value[0]
        if isinstance(first, dict) and "num-children" in first:
            return tree_of(value)
        return [_value(item) for item in value]
    return value


class _Lost:
    """Arguments that TreeNode.toJSON leaves out, fetched one by one: sets, maps, characters, bytes.

    tries: whether some expression answers NULL in place of an error, of which the JSON says nothing.
    """

    def __init__(self, *, tries: bool) -> None:
        self._known = _KNOWN_LOST - {"evalContext", "evalMode"} if tries else _KNOWN_LOST

    def restore(self, node: Node, handle: Callable[[], Any]) -> Node:
        """A node of a plan with every argument, and its children's; `handle` gives its object in the JVM."""
        cached = cache(handle)
        arguments = self._arguments(node, cached)
        position = count()

        def fresh(value: Any) -> Any:
            """The expressions among the arguments, in Spark's order."""
            if isinstance(value, list):
                return [fresh(item) for item in value]
            if not isinstance(value, Node):
                return value
            at = next(position)
            return self._expression(value, cache(lambda: cached().expressions().apply(at)), count())

        for key, value in arguments.items():
            if key != "plan":
                arguments[key] = fresh(value)
        children = tuple(
            self.restore(child, lambda at=at: cached().children().apply(at))  # type: ignore[misc]
            for at, child in enumerate(node.children)
        )
        return replace(node, arguments=arguments, children=children)

    def _expression(self, node: Node, root: Callable[[], Any], numbers: Iterator[int]) -> Node:
        """A node of the expression `root`, with every argument; Spark finds it by its number in pre-order."""
        number = next(numbers)
        arguments = self._arguments(node, cache(lambda: root().p(number) if number else root()))
        children = tuple(self._expression(child, root, numbers) for child in node.children)
        return replace(node, arguments=arguments, children=children)

    def _arguments(self, node: Node, read: Callable[[], Any]) -> dict[str, Any]:
        """The node's own arguments; nothing is fetched where nothing is lost."""
        arguments = dict(node.arguments)
        for at, (key, value) in enumerate(node.arguments.items()):
            if value is None and key not in self._known:
                if key == "evalMode":
                    # As `try_cast(...)` a cast shows its mode in one call.
                    arguments[key] = "TRY" if str(read().toString()).startswith("try_") else None
                elif key == "evalContext":
                    arguments[key] = str(read().productElement(at))
                else:
                    arguments[key] = _plain_value(read().productElement(at))
            elif node.name == "Literal" and key == "value" and str(value).startswith("[B@"):
                arguments[key] = str(read().sql())
            elif key == "plan" and isinstance(value, Node):
                arguments[key] = self.restore(value, lambda: read().plan())
        return arguments


def _plain_value(value: Any) -> Any:
    """A Scala value as text, sets and maps in a fixed order."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if re.search(r"\.(Map|HashMap|Set|HashSet|ListMap|TreeMap)", str(value.getClass().getName())):
        return sorted(str(item) for item in sequence(value.toSeq()))
    # A function of the JVM has another name, and another address, at each start.
    return re.sub(r"\$\$Lambda.*|@[0-9a-f]+$", "", str(value))


def _with_clock(spark: SparkSession, plan: Any) -> Any:
    """`plan` with the clock as MicroBatchExecution puts it in: Spark's optimizer would take the time of now for it."""
    patterns = jvm_of(spark).org.apache.spark.sql.catalyst.trees.TreePattern
    if not plan.containsPattern(patterns.CURRENT_LIKE()):
        return plan
    gateway_with_callbacks(spark)
    return plan.transformAllExpressions(_Clock(jvm_of(spark)))


class _Clock:
    """A Scala PartialFunction that puts a batch's time, zero, in place of the clock."""

    def __init__(self, jvm: Any) -> None:
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        # Without a zone it would not be resolved; Spark gives a placeholder as well.
        self._any_zone = jvm.scala.Option.apply("UTC")

    def isDefinedAt(self, expression: Any) -> bool:  # noqa: N802
        return str(expression.getClass().getSimpleName()) in _CLOCK

    def apply(self, expression: Any) -> Any:
        zoned = _CLOCK[str(expression.getClass().getSimpleName())]
        zone = expression.timeZoneId() if zoned else self._any_zone
        return self._expressions.CurrentBatchTimestamp(0, expression.dataType(), zone)

    def applyOrElse(self, expression: Any, otherwise: Any) -> Any:  # noqa: N802
        return self.apply(expression) if self.isDefinedAt(expression) else expression

    class Java:
        implements: ClassVar[list[str]] = ["scala.PartialFunction"]


def _inputs(spark: SparkSession, plan: Any) -> Iterator[tuple[int, str | StaticInput]]:
    for leaf in sequence(plan.collectLeaves()):
        first = next(map(identity, sequence(leaf.output())), None)
        if first is None:
            continue
        if leaf.isStreaming():
            yield first, stream_name(leaf) or str(leaf.nodeName())
        else:
            yield first, _static(spark, leaf)
    for subquery in sequence(plan.subqueriesAll()):
        yield from _inputs(spark, subquery)


def _static(spark: SparkSession, leaf: Any) -> StaticInput:
    kind = str(leaf.getClass().getSimpleName())
    if kind == "LogicalRelation" and str(leaf.relation().getClass().getSimpleName()) == "HadoopFsRelation":
        relation = leaf.relation()
        options = {str(option._1()): str(option._2()) for option in sequence(relation.options().toSeq())}
        return StaticInput(
            kind=str(relation.fileFormat().getClass().getSimpleName()),
            paths=tuple(sorted(str(path) for path in sequence(relation.location().rootPaths()))),
            options={key: value for key, value in options.items() if key not in ("path", "paths")},
        )
    if kind == "LocalRelation":
        return StaticInput(kind="rows", rows=_digest(frame_of(spark, leaf)))
    if kind == "LogicalRDD":
        lineage = re.findall(r"(\S+) (\w*RDD)\[", str(leaf.rdd().toDebugString()))
        if all(rdd in _IN_CODE for _, rdd in lineage):
            return StaticInput(kind="rows", rows=_digest(frame_of(spark, leaf)))
        # To compute it only for a digest may take long.
        return StaticInput(kind="rdd", paths=tuple(name for name, rdd in lineage if rdd not in _IN_CODE))
    relation = leaf.relation() if kind == "DataSourceV2ScanRelation" else leaf
    if kind in ("DataSourceV2ScanRelation", "DataSourceV2Relation"):
        options = {str(key): str(value) for key, value in dict(relation.options().asCaseSensitiveMap()).items()}
        is_python = str(relation.table().getClass().getSimpleName()) == "PythonTable"
        source = str(relation.table().name()) if is_python else ""
        return StaticInput(kind=f"{kind}: {_lasting(str(leaf))}", options=options, source=source)
    return StaticInput(kind=f"{kind}: {_lasting(str(leaf))}")


def _digest(frame: DataFrame) -> str:
    """A digest of the rows of a bounded input, the same for the same rows in any order."""
    rows = sorted(repr(tuple(row)) for row in frame.toDF(*(f"c{at}" for at in range(len(frame.columns)))).collect())
    return f"{len(rows)} rows {hashlib.sha256(chr(10).join(rows).encode()).hexdigest()[:12]}"


def _lasting(text: str) -> str:
    """The text of a leaf without what differs from start to start."""
    return re.sub(r"#\d+L?|@[0-9a-f]+\b", "", text)


def _delays(spark: SparkSession, plan: Any, root: Node) -> Iterator[int]:
    if all(node.name != "EventTimeWatermark" for node in root.walk()):
        return
    logical = jvm_of(spark).org.apache.spark.sql.catalyst.plans.logical
    for node in nodes(plan):
        if str(node.nodeName()) == "EventTimeWatermark":
            yield int(logical.EventTimeWatermark.getDelayMs(node.delay()))
