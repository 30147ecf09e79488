"""The rows out of which a plan takes the first, and by what they are sorted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.operators import LIMITS
from headrace.spark.plan_rewrite import column_of, frame_of
from headrace.spark.plans import analysed_plan, nodes, sequence

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Limited:
    """The first `most` of `rows`, sorted by `order`."""

    rows: DataFrame
    order: tuple[Column, ...]
    most: int


def limited(spark: SparkSession, frame: DataFrame) -> Limited | None:
    """The only limit of a plan, right above a sort over all rows; None where there is another one, or no such sort."""
    found = [node for node in nodes(analysed_plan(frame)) if node.nodeName() in LIMITS]
    if len(found) != 1 or found[0].nodeName() != "GlobalLimit":
        return None
    (limit,) = found
    sort = _below(limit)
    if sort.nodeName() != "Sort" or not getattr(sort, "global")():
        return None
    return Limited(
        rows=frame_of(spark, sort.child()),
        order=tuple(_ordered(spark, each) for each in sequence(sort.order())),
        most=int(limit.limitExpr().eval(None)),
    )


def _below(limit: Any) -> Any:
    node = limit.child()
    return node.child() if node.nodeName() == "LocalLimit" else node


def _ordered(spark: SparkSession, order: Any) -> Column:
    """A column of a sort with its direction, as Window takes it: it does not look into Spark's own SortOrder."""
    column = column_of(spark, order.child())
    direction, nulls = str(order.direction().sql()), str(order.nullOrdering().sql())
    if direction == "DESC":
        return column.desc_nulls_first() if nulls == "NULLS FIRST" else column.desc_nulls_last()
    return column.asc_nulls_first() if nulls == "NULLS FIRST" else column.asc_nulls_last()
