"""Whether a result that takes the first rows could as well have taken others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.limited import limited

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANK = "__headrace_rank"


def tied(spark: SparkSession, frame: DataFrame) -> bool:
    """Whether rows that are equal by the sort order lie on both sides of a limit, or a limit takes rows without order.

    Only a limit right above a sort over all rows is looked into, and it must be the only one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    limit = limited(spark, frame)
    if limit is None:
        return True
    ranked = limit.rows.select(F.rank().over(Window.orderBy(*limit.order)).alias(_RANK))
    return ranked.where(F.col(_RANK) <= limit.most).limit(limit.most + 1).count() > limit.most
