"""A batch plan that also gives, with each row of its result, the input rows that the row was made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from headrace.spark.jvm.gateway import execution_of, jvm_of
from headrace.spark.plans import plan_rewrite as plans
from headrace.spark.plans.analysed import PROCESSOR, analysed_plan, identity, sequence
from headrace.spark.plans.operators import ARBITRARY_STATE
from headrace.spark.plans.plan_rewrite import BATCH, LATE, MARK, ORIGIN, UntraceableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FED = "__headrace_fed_"
# How many input rows of each source are remembered of a row of the result: the newest of so many shares of them.
SHARES = 5
# Nodes that give out all that their children give, or what they choose of it.
_PASSING = plans.PASSING | {"Window", "Deduplicate", "GlobalLimit", "LocalLimit", "Offset", "SubqueryAlias", "View"}


def trace(spark: SparkSession, frame: DataFrame) -> tuple[DataFrame, list[Column]]:
    """`frame`, which reads a prefix that is dated, with further columns of the rows that fed each row, and these.

    Each is a struct, whose first field is the batch, or NULL; over all of them the greatest batch is the last one that
    fed the row. Of a prefix that is named too the struct has `source`, `file` and `line`. Raises UntraceableError.
    """
    plan = _Tracing(spark).of(analysed_plan(frame))
    return plans.frame_of(spark, plan), [plans.column_of(spark, attribute) for attribute in _fed_columns(plan)]


class _Tracing:
    def __init__(self, spark: SparkSession) -> None:
        self.spark, self._numbers = spark, count(1)

    def of(self, node: Any) -> Any:
        """The node with the columns of what fed each of its rows, if rows of a source come through it."""
        name = str(node.nodeName())
        if name == "SubqueryAlias" and node.identifier().name().startswith(MARK):
            # The hidden columns of the prefix lie below its last projection.
            project, below = node.child(), node.child().child()
            hidden = [attribute for attribute in plans.attributes(below) if plans.name_of(attribute) in (BATCH, ORIGIN)]
            return self._begin(plans.with_columns(self.spark, project, hidden, below))
        if BATCH in map(plans.name_of, plans.attributes(node)):
            return self._begin(node)
        below = [self.of(child) for child in sequence(node.children())]
        fed = [attribute for child in below for attribute in _fed_columns(child)]
        if not fed:
            return node
        if name in ("Project", "Expand"):
            return plans.with_columns(self.spark, node, fed, below[0])
        if name == "Union":
            return self._union(node, below)
        if name == "Aggregate":
            columns = [*sequence(node.aggregateExpressions()), *map(self._newest, fed)]
            return plans.with_parts(self.spark, node, {1: plans.scala_seq(self.spark, columns), 2: below[0]})
        if name == "Distinct":
            return self._group(below[0], plans.attributes(node), plans.attributes(node))
        if any(kind in name for kind in ARBITRARY_STATE):
            if name == PROCESSOR:
                keys = plans.attributes(node.children().head())[: int(node.groupingAttributesLen())]
            else:
                keys = list(sequence(node.groupingAttributes()))
            return self._group(below[0], keys, plans.attributes(node))
        if name in _PASSING:
            return plans.with_children(self.spark, node, below)
        raise UntraceableError(name)

    def _begin(self, node: Any) -> Any:
        """A node that gives each row's BATCH, and its ORIGIN if the prefix is named, with the columns instead."""
        from pyspark.sql import functions as F

        attributes = {plans.name_of(attribute): attribute for attribute in plans.attributes(node)}
        shown = [column for column in plans.attributes(node) if plans.name_of(column) not in (BATCH, LATE, ORIGIN)]
        batch = plans.column_of(self.spark, attributes[BATCH]).alias("batch")
        made = [F.struct(batch)]
        if ORIGIN in attributes:
            origin = plans.column_of(self.spark, attributes[ORIGIN])
            row = F.struct(batch, *[origin[name].alias(name) for name in ("source", "file", "line", "number")])
            made = [F.when(F.pmod(origin["number"], F.lit(SHARES)) == share, row) for share in range(SHARES)]
        columns = [column.alias(self._name()) for column in made]
        frame = plans.frame_of(self.spark, node)
        own = [plans.column_of(self.spark, column) for column in shown]
        return execution_of(frame.select(*own, *columns)).analyzed()

    def _name(self) -> str:
        return f"{FED}{next(self._numbers)}"

    def _newest(self, attribute: Any) -> Any:
        """The greatest value of a column, under a name and an identity of its own."""
        greatest = jvm_of(self.spark).org.apache.spark.sql.catalyst.expressions.aggregate.Max(attribute)
        return plans.alias_as(self.spark, greatest.toAggregateExpression(), attribute.newInstance())

    def _union(self, union: Any, below: Sequence[Any]) -> Any:
        """Each side with the columns of all sides, of which the others' are NULL."""
        from pyspark.sql import functions as F

        fed, sides = [_fed_columns(child) for child in below], []
        for at, (before, child) in enumerate(zip(sequence(union.children()), below, strict=True)):
            columns = [plans.column_of(self.spark, attribute) for attribute in plans.attributes(before)]
            for side, others in enumerate(fed):
                for other in others:
                    column = plans.column_of(self.spark, other)
                    none = F.lit(None).cast(other.dataType().sql())
                    columns.append(column if side == at else none.alias(plans.name_of(other)))
            sides.append(execution_of(plans.frame_of(self.spark, child).select(*columns)).analyzed())
        return plans.with_children(self.spark, union, sides)

    def _group(self, child: Any, keys: Sequence[Any], output: Sequence[Any]) -> Any:
        """A row for each group of `keys`, under the attributes of `output` by their names; other columns are NULL."""
        from pyspark.sql import functions as F

        frame = plans.frame_of(self.spark, child)
        by = [plans.column_of(self.spark, key) for key in keys]
        newest = [F.max(plans.column_of(self.spark, column)).alias(self._name()) for column in _fed_columns(child)]
        grouped = execution_of(frame.groupBy(*by).agg(*newest)).analyzed()
        by_name = {plans.name_of(key): key for key in keys}
        literal = jvm_of(self.spark).org.apache.spark.sql.catalyst.expressions.Literal
        columns = [
            column
            if identity(column) in map(identity, keys)
            else plans.alias_as(
                self.spark, by_name.get(plans.name_of(column)) or literal(None, column.dataType()), column
            )
            for column in output
        ]
        shown = [plans.column_of(self.spark, attribute) for attribute in (*columns, *_fed_columns(grouped))]
        return execution_of(plans.frame_of(self.spark, grouped).select(*shown)).analyzed()


def _fed_columns(node: Any) -> list[Any]:
    return [attribute for attribute in plans.attributes(node) if plans.name_of(attribute).startswith(FED)]
