"""Spark's logical plans, taken apart and put together again through the JVM gateway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.jvm.gateway import execution_of, gateway_of, java_session, jvm_of
from headrace.spark.plans.analysed import sequence

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MARK = "__headrace_source_"
BATCH = "__headrace_batch_of_row"
LATE = "__headrace_late_us"
ORIGIN = "__headrace_origin"

_CARRIED = (BATCH, LATE, ORIGIN)

# Nodes that give out all that their children give.
PASSING = {
    "Filter",
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "CollectMetrics",
    "ResolvedHint",
    "Generate",
    "Join",
}


class UntraceableError(Exception):
    """A node through which a row's batch cannot be carried, such as a Python function over whole partitions."""


@dataclass(frozen=True)
class Tree:
    """A plan as a Python tree. `from_source`: rows of a source pass through, which those of a bounded table are not."""

    plan: Any
    name: str
    below: tuple[Tree, ...]
    from_source: bool

    def walk(self) -> Iterator[Tree]:
        """This node, then all below it."""
        yield self
        for child in self.below:
            yield from child.walk()


def stream_tree(plan: Any) -> Tree:
    """The tree of a streaming plan."""
    below = tuple(stream_tree(child) for child in sequence(plan.children()))
    return Tree(plan, str(plan.nodeName()), below, any(tree.from_source for tree in below) or bool(plan.isStreaming()))


def batch_tree(plan: Any) -> Tree:
    """The tree of a batch plan, down to the marks at which the prefixes of the sources enter."""
    name = str(plan.nodeName())
    if name == "SubqueryAlias" and plan.identifier().name().startswith(MARK):
        return Tree(plan, MARK, (), True)
    below = tuple(batch_tree(child) for child in sequence(plan.children()))
    return Tree(plan, name, below, any(tree.from_source for tree in below))


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame of a logical plan."""
    from pyspark.sql import DataFrame

    return DataFrame(jvm_of(spark).org.apache.spark.sql.classic.Dataset.ofRows(java_session(spark), plan), spark)


def column_of(spark: SparkSession, expression: Any) -> Column:
    """A Column of an expression of a plan, bound to that very attribute and not to its name."""
    from pyspark.sql.classic.column import Column

    return Column(jvm_of(spark).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def scala_seq(spark: SparkSession, elements: Iterable[Any]) -> Any:
    return jvm_of(spark).PythonUtils.toSeq(list(elements))


def with_children(spark: SparkSession, node: Any, children: Sequence[Any]) -> Any:
    """`node` over other children."""
    return node.withNewChildren(scala_seq(spark, children))


def over(spark: SparkSession, node: Any, children: Sequence[Any]) -> Any:
    """`node` over these children; itself where they are its own."""
    own = sequence(node.children())
    same = all(before.equals(now) for before, now in zip(own, children, strict=True))
    return node if same else with_children(spark, node, children)


def with_parts(spark: SparkSession, node: Any, parts: dict[int, Any]) -> Any:
    """A copy of `node` with some of its constructor's arguments, by position, replaced."""
    arity = node.productArity()
    array = gateway_of(spark).new_array(jvm_of(spark).java.lang.Object, arity)
    for index in range(arity):
        array[index] = parts[index] if index in parts else node.productElement(index)
    return node.makeCopy(array)


def as_plain_deduplication(spark: SparkSession, node: Any) -> Any:
    """A DeduplicateWithinWatermark, which Spark refuses in a batch, as the plain deduplication by the same keys."""
    plans = jvm_of(spark).org.apache.spark.sql.catalyst.plans.logical
    # Both take the same arguments; Spark 4.3 has added one to each.
    return plans.Deduplicate(*[node.productElement(index) for index in range(node.productArity())])


def inline_ctes(spark: SparkSession, plan: Any) -> Any:
    """`plan` with its WITH clauses put where they are used."""
    if "WithCTE" not in {tree.name for tree in stream_tree(plan).walk()}:
        return plan
    from py4j.protocol import Py4JError

    rule = jvm_of(spark).org.apache.spark.sql.catalyst.optimizer.InlineCTE
    try:
        return rule(True, False).apply(plan)
    except Py4JError:  # Spark 4.3 has added an argument, which has a default.
        return rule(True, False, getattr(rule, "apply$default$3")()).apply(plan)


def optimise(spark: SparkSession, plan: Any) -> Any:
    """`plan` as Spark's optimizer leaves it; a streaming plan may be given as well."""
    return java_session(spark).sessionState().optimizer().execute(plan)


def attributes(plan: Any) -> list[Any]:
    """The attributes of a plan's output."""
    return list(sequence(plan.output()))


def name_of(attribute: Any) -> str:
    return str(attribute.name())


def same_result(plan: Any, other: Any) -> bool:
    """Whether Spark knows that two plans give the same rows."""
    return bool(plan.sameResult(other))


def has_subqueries(plan: Any) -> bool:
    """Whether an expression of a plan's node asks another plan."""
    return any(True for _ in sequence(plan.subqueries()))


def with_key(spark: SparkSession, aggregate: Any, attribute: Any) -> Any:
    """An aggregation that gives one of its keys as well."""
    columns = [*sequence(aggregate.aggregateExpressions()), attribute]
    return with_parts(spark, aggregate, {1: scala_seq(spark, columns)})


def alias_as(spark: SparkSession, expression: Any, like: Any) -> Any:
    """An expression under the name and the identity of the attribute `like`."""
    expressions, none = jvm_of(spark).org.apache.spark.sql.catalyst.expressions, jvm_of(spark).scala.Option.empty()
    bare = expression.child() if expression.nodeName() == "Alias" else expression
    return expressions.Alias(bare, like.name(), like.exprId(), scala_seq(spark, []), none, scala_seq(spark, []))


def end_micros(spark: SparkSession, attribute: Any) -> Column:
    """The event time that Spark holds against a watermark, in microseconds: a window's end, or the column itself."""
    jvm = jvm_of(spark)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    moment = attribute
    if attribute.dataType().typeName() == "struct":
        moment = expressions.GetStructField(attribute, 1, jvm.scala.Option.empty())
    long = jvm.org.apache.spark.sql.types.DataTypes.LongType
    return column_of(spark, expressions.PreciseTimestampConversion(moment, moment.dataType(), long))


def select_only(spark: SparkSession, frame: DataFrame, attributes: Iterable[Any]) -> DataFrame:
    """`frame` cut down to these attributes of its plan, which keep their identity."""
    return frame.select(*[column_of(spark, attribute) for attribute in attributes])


def with_provenance(spark: SparkSession, tree: Tree) -> Any:
    """A plan, stateless down to the sources, with BATCH, LATE and, if it was read, ORIGIN of each row in its output.

    A stateless plan is executed batch by batch, so that every row of its output belongs to one batch.
    Raises UntraceableError at a node whose output cannot take up further columns.
    """
    node = tree.plan
    if not tree.from_source:
        return node
    if tree.name == MARK:
        project = node.child()
        return with_columns(spark, project, _provenance_columns(project.child()), project.child())
    children = [with_provenance(spark, child) for child in tree.below]
    if tree.name in ("SubqueryAlias", "View"):
        return children[0]
    if tree.name in ("Project", "Expand"):
        return with_columns(spark, node, _provenance_columns(children[0]), children[0])
    if tree.name == "Union":
        return _unite(spark, node, children)
    if tree.name in PASSING:
        return with_children(spark, node, children)
    raise UntraceableError(tree.name)


def _provenance_columns(node: Any) -> list[Any]:
    carried = {attribute.name(): attribute for attribute in sequence(node.output()) if attribute.name() in _CARRIED}
    if BATCH not in carried or LATE not in carried:
        raise UntraceableError(node.nodeName())
    return [carried[name] for name in _CARRIED if name in carried]


def with_columns(spark: SparkSession, node: Any, columns: Sequence[Any], child: Any) -> Any:
    """A Project or an Expand over `child`, some of whose columns it gives as well."""
    if node.nodeName() == "Project":
        return with_parts(spark, node, {0: scala_seq(spark, [*sequence(node.projectList()), *columns]), 1: child})
    projections = [scala_seq(spark, [*sequence(projection), *columns]) for projection in sequence(node.projections())]
    output = scala_seq(spark, [*sequence(node.output()), *columns])
    return with_parts(spark, node, {0: scala_seq(spark, projections), 1: output, 2: child})


def _unite(spark: SparkSession, union: Any, children: list[Any]) -> Any:
    sides = []
    for before, child in zip(sequence(union.children()), children, strict=True):
        columns = [*sequence(before.output()), *_provenance_columns(child)]
        sides.append(execution_of(select_only(spark, frame_of(spark, child), columns)).analyzed())
    return with_children(spark, union, sides)
