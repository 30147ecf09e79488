"""Whether a result that takes the first rows could as well have taken others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.spark import plan_rewrite as plans
from headrace.spark.operators import LIMITS
from headrace.spark.plans import analysed_plan, nodes, sequence

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_RANK = "__headrace_rank"


def tied(spark: SparkSession, frame: DataFrame) -> bool:
    """Whether rows that are equal by the sort order lie on both sides of a limit, or a limit takes rows without order.

    Only a limit right above a sort over all rows is looked into, and it must be the only one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    found = [node for node in nodes(analysed_plan(frame)) if node.nodeName() in LIMITS]
    if len(found) != 1 or found[0].nodeName() != "GlobalLimit":
        return True
    (limit,) = found
    sort = _below(limit)
    if sort.nodeName() != "Sort" or not getattr(sort, "global")():
        return True
    order = [_ordered(spark, each) for each in sequence(sort.order())]
    most = int(limit.limitExpr().eval(None))
    ranked = plans.frame_of(spark, sort.child()).select(F.rank().over(Window.orderBy(*order)).alias(_RANK))
    return ranked.where(F.col(_RANK) <= most).limit(most + 1).count() > most


def _below(limit: Any) -> Any:
    node = limit.child()
    return node.child() if node.nodeName() == "LocalLimit" else node


def _ordered(spark: SparkSession, order: Any) -> Column:
    """A column of a sort with its direction, as Window takes it: it does not look into Spark's own SortOrder."""
    column = plans.column_of(spark, order.child())
    direction, nulls = str(order.direction().sql()), str(order.nullOrdering().sql())
    if direction == "DESC":
        return column.desc_nulls_first() if nulls == "NULLS FIRST" else column.desc_nulls_last()
    return column.asc_nulls_first() if nulls == "NULLS FIRST" else column.asc_nulls_last()
