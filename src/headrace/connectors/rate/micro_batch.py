"""Make the same number of rows in every batch, whatever the clock says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.connectors.options import spark_options
from headrace.connectors.rate.source import make_rows
from headrace.contract import Identity, OptionError, Source, SourceFacts, SourcePrefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class RateMicroBatch(Source):
    """Rows of (timestamp, value), `rows_per_batch` in each batch; all rows of a batch bear one timestamp.

    Source: Structured Streaming guide, "Input Sources". The offsets hold all that the rows are made from.
    """

    tuning_options: ClassVar[tuple[str, ...]] = ("rows_per_batch", "num_partitions", "start_timestamp")
    facts: ClassVar[SourceFacts] = SourceFacts(replayable=True, rate_limited=True)
    rows_per_batch: int
    num_partitions: int | None = None
    start_timestamp: int = 0
    advance_millis_per_batch: int = 1000

    def problems(self) -> Iterator[OptionError]:
        for option, value, least in (
            ("rows_per_batch", self.rows_per_batch, 1),
            ("num_partitions", self.num_partitions, 1),
            ("start_timestamp", self.start_timestamp, 0),
            ("advance_millis_per_batch", self.advance_millis_per_batch, 0),
        ):
            if value is not None and value < least:
                fix = f"give {option} a number of {least} or more"
                yield OptionError(what=f"{option} is {value}", fix=fix)

    def identity(self) -> Identity:
        return {"system": "rate_micro_batch"}

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        options = spark_options(self, *self.tuning_options, "advance_millis_per_batch")
        return spark.readStream.name(name).format("rate-micro-batch").options(**options).load()

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        spans = []
        for batch in prefix.batches:
            if batch.end is None:
                continue
            end = json.loads(batch.end)
            # The first batch began where the option said then, which may say something else today.
            first = {"offset": 0, "timestamp": end["timestamp"] - self.advance_millis_per_batch}
            start = json.loads(batch.start) if batch.start else first
            spans.append((batch.batch, int(start["offset"]), int(end["offset"]), int(start["timestamp"]), 0.0))
        return make_rows(spark, spans, batch_column)
