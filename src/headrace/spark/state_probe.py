"""The state that Spark would keep for a query, found by letting it plan one batch without rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.session_conf import applied

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    with applied(spark, settings):
        writer = build().writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(place))
        writer.trigger(availableNow=True).start().awaitTermination()
    return place
