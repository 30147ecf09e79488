"""The rows of a query's state, by Spark's own reader of checkpoints.

Source: Spark's state data source guide; StateDataSource of Spark 4.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.literal_path import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The reader takes the number of partitions from the batch's offsets, which lack it where sources have names; then it
# takes what the session says.
PARTITIONS = "spark.sql.streaming.internal.stateStore.partitions"


def read_state(
    spark: SparkSession, checkpoint: Path, *, operator: int, batch: int, options: dict[str, str] | None = None
) -> DataFrame:
    """The state that `batch` left in an operator: `key STRUCT, value STRUCT, partition_id INT`.

    options: what names a part of it, as `joinSide` or `stateVarName` of Spark's reader. The session must have
    PARTITIONS set. A variable of a processor has other columns beside the key.
    """
    reader = spark.read.format("statestore").option("operatorId", operator).option("batchId", batch)
    for name, value in (options or {}).items():
        reader = reader.option(name, value)
    return reader.load(literal(str(checkpoint)))
