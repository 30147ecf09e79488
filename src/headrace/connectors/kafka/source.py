"""Read topics of Kafka, as they are or decoded to columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from headrace import contract
from headrace.connectors.kafka import prefix as kafka_prefix
from headrace.connectors.kafka.client import FAILURES, ISOLATION, SHORT, SHORT_FIX, Client, client
from headrace.connectors.kafka.options import VALUE_FAILURES, KafkaOptions, avro_text
from headrace.connectors.values.rules import FAULT, PLACE
from headrace.errors import SourceError
from headrace.spark import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.connectors.values.exact import Judged

_POSITION = ("partition", "offset")
# How many messages of a partition, and partitions, are looked at before a start.
_LOOKED_AT = 20


@dataclass(frozen=True, kw_only=True)
class Kafka(KafkaOptions, contract.Source):
    """Messages of the topics that `subscribe`, `subscribe_pattern` or `assign` names; one of the three is needed.

    Source: Structured Streaming + Kafka integration guide. `value` says what a message's value holds: `raw` gives
    Spark's seven columns (key, value, topic, partition, offset, timestamp, timestampType; and headers with
    `include_headers`), `text`, `json` and `avro` decode it to columns, after those of Spark's that `keep` names. For
    `json`, `schema` is a DDL text; for `avro`, Avro's JSON or the path of a file that holds it. `debezium` gives the
    changes of a table for a query with `cdc`: `schema` declares the table's columns, in Spark's types.

    debezium_settings: how Debezium's connector writes values, by its own names (`decimal.handling.mode`,
        `time.precision.mode`, `binary.handling.mode`); needed where messages have no schema part.
    change_keys: the columns that the key of a message must have; the `keys` of the query's `cdc`, if not given.

    starting_offsets: `earliest` (all that the topics still hold), `latest` (only what comes after the first start) or
        {topic: {partition: offset}}; for the first start only. A number in `starting_timestamp` (milliseconds since
        1970) is taken instead, if given.
    max_offsets_per_trigger: how many messages a batch takes at most, a million if not given, or `unlimited`.
    fail_on_data_loss: end the query when messages were deleted before they were read, as by the topic's retention.
    topic_ids: {topic: id} accepts that a topic has another id than when the query first read it, as after a move of its
        messages and offsets to another cluster.
    on_bad_row: `fail` ends the query at the first value that does not fit, `quarantine` sets such messages aside.
    inexact: a value of `json` that its type does not hold exactly (1.239 for a DECIMAL(10,2), nanoseconds for a
        TIMESTAMP, a time for a DATE, 1e999 for a DOUBLE) makes a `bad-row`; `round` takes what Spark makes of it.
    options: Spark's further options of its Kafka source; those that begin with `kafka.` are for Kafka's consumer.
        Messages of aborted and of open transactions are not read, unless `kafka.isolation.level` is `read_uncommitted`.
    """

    place_options: ClassVar[tuple[str, ...]] = ("subscribe", "subscribe_pattern", "assign")
    tuning_options: ClassVar[tuple[str, ...]] = (
        "bootstrap_servers",
        "starting_offsets",
        "starting_timestamp",
        "max_offsets_per_trigger",
        "min_offsets_per_trigger",
        "max_trigger_delay",
        "min_partitions",
        "fail_on_data_loss",
        "include_headers",
        "keep",
        "change_keys",
        "topic_ids",
        "on_bad_row",
        "options",
    )
    row_options: ClassVar[tuple[str, ...]] = (ISOLATION,)
    row_defaults: ClassVar[Mapping[str, str]] = {ISOLATION: "read_committed"}
    object_kind: ClassVar[str] = "topic"
    failures: ClassVar[tuple[contract.Failure, ...]] = (*VALUE_FAILURES, *FAILURES)

    @property
    def facts(self) -> contract.SourceFacts:
        return contract.SourceFacts(
            replayable=True,
            rate_limited=self.max_offsets_per_trigger != "unlimited",
            # Bad rows are counted by an operator that continuous processing has not.
            continuous=self.on_bad_row == "fail",
            real_time=True,
            change_data=self.value == "debezium",
        )

    @property
    def quarantines(self) -> bool:
        return self.on_bad_row == "quarantine"

    @property
    def jars(self) -> tuple[str, ...]:
        return ("kafka", "avro") if self.value == "avro" else ("kafka",)

    def declared_schema(self) -> str | None:
        return self.schema

    def identity(self) -> contract.Identity:
        which: contract.Identity = {"topics": sorted(self.topics())}
        if self.subscribe_pattern is not None:
            which = {"topic_pattern": self.subscribe_pattern}
        elif self.assign is not None:
            which = {**which, "partitions": {topic: sorted(numbers) for topic, numbers in self.assign.items()}}
        return {"system": "kafka", "servers": contract.canonical_servers(self.bootstrap_servers), **which}

    def check_connection(self, spark: SparkSession) -> None:
        """Ask the broker for the topics, and for the newest messages where they are to be changes of a table."""
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            broker.require_topics(self.topics())
            is_read = self.starting_offsets == "earliest" and self.starting_timestamp is None
            if self.value == "debezium" and is_read and not self.quarantines:
                self._require_changes(spark, broker)

    def _require_changes(self, spark: SparkSession, broker: Client) -> None:
        """Raise SourceError if of the newest messages of some partitions none is a change of the table."""
        places = self._places(broker)
        first, last = broker.earliest(places), broker.latest(places)
        filled = [place for place in sorted(places) if last[place] > first[place]][:_LOOKED_AT]
        if not filled:
            return
        begins = {place: max(first[place], last[place] - _LOOKED_AT) for place in filled}
        options = kafka_prefix.span_options(begins, {place: last[place] for place in filled})
        messages = spark.read.format("kafka").options(**self.reader_options(), **options).load()
        judged = self._judge(messages.where("value IS NOT NULL")).frame.select(PLACE, FAULT).collect()
        if judged and all(fault for _, fault in judged):
            place, fault = max(judged)
            code = "HR363" if fault.startswith("has no column") else "HR362"
            problem = (
                f"none of the newest {len(judged)} messages can be applied: {place} (topic/partition/offset) {fault}"
            )
            raise SourceError(code=code, what=problem, fix="correct what writes the topic, or the source's options")

    def object_ids(self, spark: SparkSession) -> dict[str, str]:
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            return broker.topic_ids(self._topics(broker))

    @property
    def accepted_ids(self) -> Mapping[str, str]:
        return self.topic_ids

    def accepting(self, name: str, id_: str) -> str:
        return (
            f"; if it was moved with its messages and their offsets, as to another cluster, give the source topic_ids: "
            f"{{{name}: {id_}}}"
        )

    def without_rate_limit(self) -> Kafka:
        return replace(self, max_offsets_per_trigger="unlimited", min_offsets_per_trigger=None, max_trigger_delay=None)

    def with_positions(self) -> tuple[Kafka, tuple[str, ...]] | None:
        if self.value == "raw":
            return self, ()
        if self.value == "debezium":
            return None  # Its column says the position itself.
        # A column of the schema that is called so is not the message's.
        declared = [column["name"].lower() for column in ddl.columns(self.schema or "")] if self.value == "json" else []
        if not set(declared).isdisjoint(_POSITION):
            return None
        added = tuple(name for name in _POSITION if name not in self.keep)
        return replace(self, keep=(*self.keep, *added)), added

    def with_keys(self, keys: tuple[str, ...]) -> Kafka:
        return self if self.value != "debezium" or self.change_keys else replace(self, change_keys=keys)

    def parallelism(self, spark: SparkSession) -> int:
        if self.assign is not None:
            return sum(map(len, self.assign.values()))
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            return len(self._places(broker))

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        reader = spark.readStream.name(name).format("kafka").options(**self.stream_options())
        return self._decode(reader.load(), contract.bad_rows_metric(name))

    def read(self, spark: SparkSession, prefix: contract.SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        frame = self._messages(spark, prefix, batch_column)
        return self._decode(frame, contract.bad_rows_metric(uuid4().hex), batch_column)

    def read_placed(
        self, spark: SparkSession, prefix: contract.SourcePrefix, *, batch_column: str, place_column: str
    ) -> DataFrame:
        """The place of a message is topic/partition/offset."""
        from headrace.connectors.kafka.values import place

        frame = self._messages(spark, prefix, batch_column).withColumn(place_column, place())
        return self._decode(frame, contract.bad_rows_metric(uuid4().hex), batch_column, place_column)

    @property
    def again(self) -> str:
        return "correct them and send them to the topic again; if the schema is wrong, correct it and rebuild the query"

    def rejected_rows(self, spark: SparkSession, prefix: contract.SourcePrefix) -> DataFrame | None:
        """The messages that were quarantined; `file` is topic/partition/offset, `record` the value as text."""
        if self.on_bad_row != "quarantine":
            return None
        frame = self._messages(spark, prefix, "batch")
        return self._judge(frame, "batch").bad_rows(contract.bad_rows_metric(uuid4().hex), file=PLACE)

    def mismatch(self, prefix: contract.SourcePrefix) -> str:
        return kafka_prefix.mismatch(prefix, self.reads_topic, self.topics())

    def starting_position(self) -> str:
        if self.starting_timestamp is not None:
            return f"at the messages of {self.starting_timestamp} ms since 1970 and later (starting_timestamp)"
        if self.starting_offsets == "earliest":
            return "at the earliest messages that its topics still hold (starting_offsets: earliest)"
        if self.starting_offsets == "latest":
            return "at messages that come from now on (starting_offsets: latest)"
        return "at the offsets that starting_offsets gives"

    def lag(self, prefix: contract.SourcePrefix) -> contract.Lag | None:
        """The messages of its topics behind the committed offsets, where confluent-kafka is installed."""
        position = kafka_prefix.end_position(prefix)
        if position is None:
            # Before its first start: what a start at another place than the earliest messages will take is not known.
            if self.starting_timestamp is not None or self.starting_offsets != "earliest":
                return None
            position = {}
        ids = prefix.ids()
        return kafka_prefix.measure_lag(self, position, partial(self.find_recreated, ids) if ids else None)

    def left_out(self, prefix: contract.SourcePrefix) -> Iterator[contract.OptionError]:
        """Messages that an open transaction holds back; a topic that was created again ends the query."""
        lag = self.lag(replace(prefix, ids=dict))
        if lag is not None and lag.problem:
            fix = "end the program that holds it open; kafka-transactions.sh find-hanging shows it, and abort ends it"
            yield contract.OptionError(code="HR348", what=lag.problem, fix=fix, severity="warning")

    def ends_before(self, spark: SparkSession, prefix: contract.SourcePrefix) -> contract.OptionError | None:
        """Spark would plan a batch that ends there, and fail over it at each start from then on."""
        position = kafka_prefix.end_position(prefix)
        if not position or not self.fail_on_data_loss:
            return None
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            ends = broker.latest(position)
        for (topic, partition), end in sorted(ends.items()):
            if end < (offset := position[topic, partition]):
                fault = f"topic '{topic}', partition {partition}, ends at offset {end} and was read up to {offset}"
                return contract.OptionError(code="HR343", what=f"{fault}: {SHORT}", fix=SHORT_FIX)
        return None

    def reported_lag(self, end: str, latest: str) -> contract.Lag:
        """Count what the topics held when the batch was planned, as Spark had asked the broker for it."""
        return contract.Lag(count=kafka_prefix.waiting(end, latest), unit="messages")

    def unreachable(self, spark: SparkSession, prefix: contract.SourcePrefix) -> str:
        wanted = kafka_prefix.ranges(prefix)
        if not wanted:
            return ""
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            if problem := self.find_recreated(prefix.ids(), broker.topic_ids(topic for topic, _ in wanted)):
                return problem.what
            earliest = broker.earliest(wanted)
        gone = kafka_prefix.first_gone(wanted, earliest)
        return "" if gone is None else f"messages of {gone}"

    def since(self, spark: SparkSession, prefix: contract.SourcePrefix) -> Kafka:
        if self.starting_offsets == "earliest" and self.starting_timestamp is None:
            return self
        begun = kafka_prefix.beginning(prefix)
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            self.require_same(prefix.ids(), broker.topic_ids(topic for topic, _ in begun))
            earliest = broker.earliest(self._places(broker))
        # A partition that came later was read from its first message on.
        offsets = {place: max(begun.get(place, first), first) for place, first in earliest.items()}
        return replace(self, starting_offsets=kafka_prefix.by_topic(offsets), starting_timestamp=None)

    def since_time(self, spark: SparkSession, at: datetime) -> Kafka:
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            offsets = broker.at_time(self._places(broker), int(at.timestamp() * 1000))
        return replace(self, starting_offsets=kafka_prefix.by_topic(offsets), starting_timestamp=None)

    def _places(self, broker: Client) -> list[tuple[str, int]]:
        """The partitions that there are to read now."""
        if self.assign is not None:
            return [(topic, number) for topic, numbers in self.assign.items() for number in numbers]
        return broker.places(self._topics(broker))

    def _topics(self, broker: Client) -> Iterable[str]:
        """The topics that there are to read now; those that the options name, also where they are not there."""
        if self.subscribe_pattern is None:
            return self.topics()
        return [name for name in broker.topics() if re.fullmatch(self.subscribe_pattern, name)]

    def _messages(self, spark: SparkSession, prefix: contract.SourcePrefix, batch_column: str | None) -> DataFrame:
        """Spark's own columns of every message of `prefix`."""
        ranges = kafka_prefix.ranges(prefix)
        reader = spark.read.format("kafka").options(**self.reader_options())
        if not ranges:
            shape = spark.readStream.name("nothing").format("kafka").options(**self.stream_options()).load()
            empty = spark.createDataFrame([], shape.schema)
            return empty if batch_column is None else kafka_prefix.with_batch(empty, {}, batch_column)
        with client(spark, self.bootstrap_servers, self.options, SourceError) as broker:
            self.require_same(prefix.ids(), broker.topic_ids(topic for topic, _ in ranges))
            gone = kafka_prefix.first_gone(ranges, broker.earliest(ranges))
        if gone is not None:
            fix = "verify while the topic still keeps what was read, or let it keep messages longer"
            raise SourceError(code="HR343", what=f"messages of {gone}", fix=fix)
        first = {place: spans[0].start for place, spans in ranges.items()}
        last = {place: spans[-1].end for place, spans in ranges.items()}
        frame = reader.options(**kafka_prefix.span_options(first, last)).load()
        return frame if batch_column is None else kafka_prefix.with_batch(frame, ranges, batch_column)

    def _decode(self, frame: DataFrame, metric: str, *besides: str | None) -> DataFrame:
        from headrace.connectors.values.rows import reuse_columns

        if self.value == "raw":
            return frame
        others = [name for name in besides if name is not None]
        judged = self._judge(frame, *others)
        if self.on_bad_row == "quarantine":
            rows = judged.good_rows(metric)
        else:
            columns = reuse_columns(frame.sparkSession, ("kafka", *judged.key), judged.check_columns)
            rows = judged.require_readable().select(*columns)
        values = [name for name in rows.columns if name not in (*self.keep, *others)]
        return rows.select(*[f"`{name}`" for name in (*self.keep, *values, *others)])

    def _judge(self, frame: DataFrame, *besides: str) -> Judged:
        from headrace.connectors.kafka.values import decode

        exact = self.inexact == "bad-row"
        return decode(
            frame,
            self.value,
            self._schema(),
            exact=exact,
            keep=self.keep,
            besides=besides,
            settings=self.debezium_settings,
            keys=self.change_keys,
            one_table=len(self.topics()) == 1,
        )

    def _schema(self) -> str | None:
        if self.schema is None or self.value != "avro":
            return self.schema
        text = avro_text(self.schema)
        if isinstance(text, contract.OptionError):
            raise SourceError(code=text.code, what=text.what, fix=text.fix)
        return text
