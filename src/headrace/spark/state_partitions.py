"""The number of partitions that a query's state has, changed by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def repartition_state(spark: SparkSession, checkpoint: Path, partitions: int) -> None:
    """Let Spark write the state of a query that does not run into `partitions` partitions, as a batch of its own."""
    session: Any = spark
    session._streamingCheckpointManager.repartition(str(checkpoint), partitions)
