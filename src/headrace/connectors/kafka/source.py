"""Read topics of Kafka, as they are or decoded to columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from headrace.connectors.kafka import options as kafka_options
from headrace.connectors.kafka import prefix as kafka_prefix
from headrace.connectors.kafka import values as kafka_values
from headrace.connectors.kafka.client import client
from headrace.contract import Backlog, OptionError, SourceFacts, SourcePrefix, bad_rows_metric
from headrace.errors import Finding, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_MAX_OFFSETS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Kafka:
    """Messages of the topics that `subscribe`, `subscribe_pattern` or `assign` names; one of the three is needed.

    Source: Structured Streaming + Kafka integration guide. `value` says what a message's value holds: `raw` gives
    Spark's seven columns (key, value, topic, partition, offset, timestamp, timestampType; and headers with
    `include_headers`), `text`, `json` and `avro` decode it to columns, after those of Spark's that `keep` names. For
    `json`, `schema` is a DDL text; for `avro`, Avro's JSON or the path of a file that holds it.

    starting_offsets: `earliest` (all that the topics still hold), `latest` (only what comes after the first start) or
        {topic: {partition: offset}}; for the first start only. A number in `starting_timestamp` (milliseconds since
        1970) is taken instead, if given.
    max_offsets_per_trigger: how many messages a batch takes at most, a million if not given, or `without_rate_limit`.
    fail_on_data_loss: end the query when messages have gone before they were read, as by the topic's retention.
    on_bad_row: `fail` ends the query at the first value that does not decode, `quarantine` sets such messages aside.
    options: Spark's further options of its Kafka source; those that begin with `kafka.` are for Kafka's consumer.
    """

    bootstrap_servers: str
    subscribe: str | tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    value: Literal["raw", "text", "json", "avro"] = "raw"
    schema: str | None = None
    keep: tuple[str, ...] = ()
    starting_offsets: str | Mapping[str, Mapping[int, int]] = "earliest"
    starting_timestamp: int | None = None
    max_offsets_per_trigger: int | Literal["unlimited"] | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: str | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    on_bad_row: Literal["fail", "quarantine"] = "fail"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(
            replayable=True,
            readable_as_batch=True,
            rate_limited=self.max_offsets_per_trigger != "unlimited",
            quarantines=self.on_bad_row == "quarantine",
            # Bad rows are counted by an operator that continuous processing has not.
            continuous=self.on_bad_row == "fail",
            real_time=True,
        )

    @property
    def jvm(self) -> tuple[str, ...]:
        return ("kafka", "avro") if self.value == "avro" else ("kafka",)

    def problems(self) -> Iterator[OptionError]:
        return kafka_options.problems(self)

    def check_connection(self, spark: SparkSession) -> None:
        """Ask the broker for the topics."""
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            broker.require_topics(kafka_options.topics(self))

    def without_rate_limit(self) -> Kafka:
        return replace(self, max_offsets_per_trigger="unlimited", min_offsets_per_trigger=None, max_trigger_delay=None)

    def parallelism(self, spark: SparkSession) -> int:
        if self.assign is not None:
            return sum(map(len, self.assign.values()))
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            if self.subscribe_pattern is None:
                return broker.partitions(kafka_options.topics(self))
            return broker.partitions([name for name in broker.topics() if re.fullmatch(self.subscribe_pattern, name)])

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        reader = spark.readStream.name(name).format("kafka").options(**kafka_options.stream_options(self))
        return self._decoded(reader.load(), spark, bad_rows_metric(name))

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        frame = self._messages(spark, prefix, batch_column)
        return self._decoded(frame, spark, kafka_values.unique_metric(), batch_column)

    def bad_rows(self, spark: SparkSession, prefix: SourcePrefix) -> DataFrame | None:
        """The messages that were set aside; `file` is topic/partition/offset, `record` the value as text."""
        if self.on_bad_row != "quarantine":
            return None
        frame = self._messages(spark, prefix, "batch")
        return kafka_values.undecodable(frame, self.value, self._schema())

    def beginning(self) -> str:
        if self.starting_timestamp is not None:
            return f"at the messages of {self.starting_timestamp} ms since 1970 and later (starting_timestamp)"
        if self.starting_offsets == "earliest":
            return "at the earliest messages that its topics still hold (starting_offsets: earliest)"
        if self.starting_offsets == "latest":
            return "at messages that come from now on (starting_offsets: latest)"
        return "at the offsets that starting_offsets gives"

    def ensure_available(self, prefix: SourcePrefix) -> None:
        """Spark itself ends the query when messages have gone, if fail_on_data_loss is true."""

    def backlog(self, prefix: SourcePrefix) -> Backlog | None:
        """Not told: only a consumer of Kafka's could."""

    def _messages(self, spark: SparkSession, prefix: SourcePrefix, batch_column: str | None) -> DataFrame:
        """Spark's own columns of every message of `prefix`."""
        ranges = kafka_prefix.ranges(prefix)
        reader = spark.read.format("kafka").options(**kafka_options.reader_options(self))
        if not ranges:
            shape = (
                spark.readStream.name("nothing").format("kafka").options(**kafka_options.stream_options(self)).load()
            )
            empty = spark.createDataFrame([], shape.schema)
            return empty if batch_column is None else kafka_prefix.with_batch(empty, {}, batch_column)
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            kafka_prefix.require_kept(ranges, broker.earliest(ranges))
        first = {place: spans[0].start for place, spans in ranges.items()}
        last = {place: spans[-1].end for place, spans in ranges.items()}
        frame = (
            reader.option("assign", json.dumps(kafka_prefix.partitions(ranges)))
            .option("startingOffsets", kafka_prefix.as_json(first))
            .option("endingOffsets", kafka_prefix.as_json(last))
            .load()
        )
        return frame if batch_column is None else kafka_prefix.with_batch(frame, ranges, batch_column)

    def _decoded(
        self, frame: DataFrame, spark: SparkSession, metric: str, batch_column: str | None = None
    ) -> DataFrame:
        if self.value == "raw":
            return frame
        besides = () if batch_column is None else (batch_column,)
        decoded = kafka_values.decode(frame, self.value, self._schema(), keep=self.keep, besides=besides)
        if self.on_bad_row == "quarantine":
            return kafka_values.rejected(decoded, metric)
        return kafka_values.refuse(decoded)

    def _schema(self) -> str | None:
        if self.value != "avro" or self.schema is None or self.schema.lstrip().startswith(("{", "[", '"')):
            return self.schema
        try:
            with open(self.schema, encoding="utf-8") as file:
                return file.read()
        except OSError as fault:
            what = f"the Avro schema '{self.schema}' cannot be read: {fault.strerror}"
            fix = "give schema the path of an .avsc file, or the JSON itself"
            raise SourceError(Finding(code="HR333", what=what, fix=fix)) from fault
