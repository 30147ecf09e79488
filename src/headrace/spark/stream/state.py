"""A query's state through Spark: its rows read, what would be kept found out, its partitions changed.

Source: Spark's state data source guide; StateDataSource of Spark 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.spark.jvm.hadoop_files import escape_pattern
from headrace.spark.jvm.session_conf import apply_settings

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
    PARTITIONS set. A variable of a processor has other columns next to the key.
    """
    reader = spark.read.format("statestore").option("operatorId", operator).option("batchId", batch)
    for name, value in (options or {}).items():
        reader = reader.option(name, value)
    return reader.load(escape_pattern(str(checkpoint)))


def placeholder(spark: SparkSession, name: str, like: DataFrame, scratch: Path) -> DataFrame:
    """A stream with the columns of `like` that gives a batch, and no row in it."""
    folder = scratch / "sources" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "empty.json").write_text("")
    return spark.readStream.name(name).schema(like.schema).format("json").load(str(folder))


def probe(
    spark: SparkSession, build: Callable[[], DataFrame], mode: str, scratch: Path, settings: Mapping[str, str]
) -> Path:
    """The checkpoint of one batch of what `build` gives, which reads placeholders, under `settings`.

    Spark writes the schema of each state when it plans a batch, from the optimised plan; nothing else gives it whole.
    """
    place = scratch / "checkpoint"
    with apply_settings(spark, settings):
        writer = build().writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(place))
        writer.trigger(availableNow=True).start().awaitTermination()
    return place


def repartition_state(spark: SparkSession, checkpoint: Path, partitions: int) -> None:
    """Let Spark write the state of a query that does not run into `partitions` partitions, as a batch of its own."""
    session: Any = spark
    session._streamingCheckpointManager.repartition(str(checkpoint), partitions)
