"""Make rows at a steady rate of the clock, for tests of load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.connectors.options import not_above_zero, spark_options
from headrace.contract import Identity, OptionError, Source, SourceFacts, SourcePrefix
from headrace.errors import SourceError
from headrace.units import spark_milliseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "timestamp TIMESTAMP, value BIGINT"


@dataclass(frozen=True, kw_only=True)
class Rate(Source):
    """Rows of (timestamp, value), `rows_per_second` of them; value counts from 0.

    Source: Structured Streaming guide, "Input Sources". The time of creation is in the source's log, so that the same
    offsets give the same rows in a new process too. A batch holds the rows of all seconds since the last one: its size
    has no bound after a long stop.
    """

    # By the other two, Spark computes which rows an offset stands for.
    tuning_options: ClassVar[tuple[str, ...]] = ("num_partitions",)
    facts: ClassVar[SourceFacts] = SourceFacts(replayable=True, continuous=True)
    rows_per_second: int = 1
    ramp_up_time: str | None = None
    num_partitions: int | None = None

    def problems(self) -> Iterator[OptionError]:
        yield from not_above_zero(self, "rows_per_second", "num_partitions")
        if self._ramp_ms is None or self._ramp_ms < 0:
            yield OptionError(
                what=f"ramp_up_time '{self.ramp_up_time}' is not a length of time",
                fix="write a number and one unit, for example 5s or 2min",
            )

    def identity(self) -> Identity:
        return {"system": "rate"}

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        options = spark_options(self, "rows_per_second", "ramp_up_time", "num_partitions")
        return spark.readStream.name(name).format("rate").options(**options).load()

    def unreachable(self, spark: SparkSession, prefix: SourcePrefix) -> str:
        return "its rows are generated again, from 0 and from now on"

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        """Make the rows of `prefix` again by Spark's own arithmetic: a batch's rows are spread evenly over its time."""
        created_ms = self._creation_ms(prefix)
        spans = [
            (
                batch.batch,
                self._value_at(start),
                self._value_at(end),
                created_ms + start * 1000,
                float((end - start) * 1000) / max(1, self._value_at(end) - self._value_at(start)),
            )
            for batch in prefix.batches
            if batch.end is not None and (end := int(batch.end)) > (start := int(batch.start or 0))
        ]
        return make_rows(spark, spans, batch_column)

    def parallelism(self, spark: SparkSession) -> int:
        return self.num_partitions or int(spark.sparkContext.defaultParallelism)

    def _creation_ms(self, prefix: SourcePrefix) -> int:
        """When the source was first started, in milliseconds."""
        if not any(batch.end is not None for batch in prefix.batches):
            return 0
        try:
            return int(json.loads(prefix.log[0][0]))
        except (KeyError, IndexError, ValueError) as error:
            raise SourceError(
                code="HR509",
                what="the rate source's log, which holds the time of its creation, is missing or cannot be read",
                fix="restore the checkpoint's directory sources/, or reset the query (headrace reset QUERY)",
            ) from error

    def _value_at(self, second: int) -> int:
        """Count the rows up to `second` seconds after the creation."""
        ramp = int((self._ramp_ms or 0) // 1000)
        step = self.rows_per_second // (ramp + 1)
        rising = min(second, ramp)
        return step * rising * (rising + 1) // 2 + (second - rising) * self.rows_per_second

    @property
    def _ramp_ms(self) -> float | None:
        return spark_milliseconds(self.ramp_up_time or "0", default_unit="s")


def make_rows(
    spark: SparkSession, spans: Sequence[tuple[int, int, int, int, float]], batch_column: str | None
) -> DataFrame:
    """Make the rows (timestamp, value) of spans.

    spans: batch, its first value, the first value after it, its start in milliseconds, milliseconds per value.
    """
    from pyspark.sql import functions as F

    columns = "batch BIGINT, first BIGINT, until BIGINT, from_ms BIGINT, ms_per_value DOUBLE"
    values = F.explode(F.sequence("first", F.expr("until - 1")))
    rows = spark.createDataFrame([span for span in spans if span[1] < span[2]], columns).withColumn("made", values)
    relative = F.round((F.col("made") - F.col("first")) * F.col("ms_per_value")).cast("bigint")
    timestamp = F.timestamp_millis(F.col("from_ms") + relative).alias("timestamp")
    batch = [] if batch_column is None else [F.col("batch").alias(batch_column)]
    # Without `otherwise` the column may be NULL for Spark, as that of its own source.
    value = F.when(F.col("made") >= 0, F.col("made")).alias("value")
    return rows.select(timestamp, value, *batch)
