"""Write the result into Kafka, each row as a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import contract
from headrace.connectors.exactly_once import misfits
from headrace.connectors.kafka import topic_ledger
from headrace.connectors.kafka.client import ADDRESS_FIX, FAILURES, client, server_faults, topic_faults
from headrace.connectors.kafka.producer import ROW_TOPICS, TopicTarget, as_messages
from headrace.connectors.kafka.topic_ledger import KafkaLedger
from headrace.connectors.kafka.transactions import KafkaBatches, KafkaStore
from headrace.connectors.result_findings import findings_of
from headrace.errors import Finding, SinkError
from headrace.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Of a broker that is away it has no such cause.
_UNKNOWN_TOPIC = re.compile(r"Topic (\S+) not present in metadata .*\n.*UnknownTopicOrPartitionException")
COLUMNS = ("key", "value", "topic", "partition", "headers")
_OWN = ("kafka.bootstrap.servers", "topic", "includeheaders")
_REFUSED = ("kafka.key.serializer", "kafka.value.serializer")


@dataclass(frozen=True, kw_only=True)
class KafkaSink(TopicTarget, contract.Sink):
    """Send a message for each row to `topic`, or to the topic that the row's own column `topic` names.

    Source: Structured Streaming + Kafka integration guide, "Writing Data to Kafka". `value` says what the value is
    made of: `raw` takes the result's columns as Spark wants them (value, and if they are there key, topic, partition,
    headers), `json` makes an object of every column. With `json`, `key` names the columns of the message's key: one
    is written as text, several as a JSON object.

    delivery_guarantee: `at-least-once`: Spark's own sink, on all machines; a batch that comes again is written again.
        `exactly-once`: one transaction of Kafka's for each batch, for consumers with `isolation.level=read_committed`.
        All rows of a batch go through the driver, and have to fit into its memory: a transaction has one producer.
    ledger_topic: for `exactly-once`, the compacted topic that says which batches are in; by default the topic's name
        and `.headrace`. It is made where there is none, with one partition.
    retry_seconds: for `exactly-once`, how long a batch is tried again while the broker is away.
    producer: for `exactly-once`, settings of Kafka's C client (librdkafka) by its names, next to those of `options`
        that both clients know.
    async_progress: how often progress is written, at the side of the batches, for a stateless query that must be
        quick: batches do not wait for it, and after a crash those of this length of time come again.
    """

    jars: ClassVar[tuple[str, ...]] = ("kafka",)
    failures: ClassVar[tuple[contract.Failure, ...]] = FAILURES
    place_options: ClassVar[tuple[str, ...]] = ("topic",)
    layout_options: ClassVar[tuple[str, ...]] = ("value",)
    tuning_options: ClassVar[tuple[str, ...]] = ("retry_seconds", "producer")

    @property
    def exactly_once(self) -> bool:
        return self.delivery_guarantee == "exactly-once"

    @property
    def facts(self) -> contract.SinkFacts:
        spark = not self.exactly_once and self.async_progress is None
        return contract.SinkFacts(
            modes=frozenset(contract.OUTPUT_MODES),
            transactional=self.exactly_once,
            idempotent=self.exactly_once,
            continuous=spark,
            real_time=spark,
            async_progress=not self.exactly_once and self.async_progress is not None,
            shares_appends=self.exactly_once,
            readable_back=self.exactly_once and self.value == "json" and self.topic is not None,
            begins_anywhere=not self.exactly_once,
        )

    def problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        yield from server_faults(self.bootstrap_servers)
        if self.topic is not None:
            yield from topic_faults(self.topic, "correct the topic's name")
        if self.value == "raw" and self.key:
            yield contract.OptionError(what="key has no meaning with value raw", fix="give the result a column key")
        if self.value == "json" and self.topic is None:
            yield contract.OptionError(what="no topic is named", fix="give topic, or value: raw and a column topic")
        if self.async_progress is not None and _milliseconds(self.async_progress) is None:
            fault = f"async_progress '{self.async_progress}' is not a length of time"
            yield contract.OptionError(what=fault, fix="write a number and its unit, as in 500ms or 1s")
        for name in self.options:
            if name.lower() in _OWN:
                fault = f"options holds '{name}', which Headrace sets itself"
                yield contract.OptionError(what=fault, fix="give bootstrap_servers and topic as such")
            if name.lower() in _REFUSED:
                fault = f"options holds '{name}', which Spark refuses"
                yield contract.OptionError(what=fault, fix="leave it out: rows are written as texts or bytes")
        if self.exactly_once:
            yield from self._transaction_problems(mode)

    def _transaction_problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        """Find what keeps the messages of a batch from being one transaction."""
        if find_spec("confluent_kafka") is None:
            fault = "exactly once into Kafka needs the package confluent-kafka, which is not installed"
            yield contract.OptionError(code="HR011", what=fault, fix="pip install 'headrace[kafka]'")
        if self.async_progress is not None:
            fault = "async_progress has no meaning with delivery_guarantee exactly-once"
            yield contract.OptionError(what=fault, fix="leave one of the two out")
        if self.topic is None and self.ledger_topic is None:
            fault = "exactly-once without a topic of the sink's own needs a ledger topic"
            yield contract.OptionError(what=fault, fix="give ledger_topic")
        else:
            yield from topic_faults(self.ledger_place, "correct ledger_topic")
        if mode == "update" and self.value == "json" and not self.key:
            fault = "update mode with delivery_guarantee exactly-once needs a key"
            yield contract.OptionError(code="HR403", what=fault, fix="name in key the columns that identify a row")

    def open(self, frame: DataFrame, context: contract.SinkContext) -> contract.Writer:
        """Compare the result's columns with what Kafka takes, ask the broker for the topic, and begin the ledger."""
        if findings := list(self.check_result(frame, context)):
            raise SinkError(findings)
        self._require_topic(frame)
        if not self.exactly_once:
            return KafkaWriter(self)
        store = KafkaStore(self, context)
        with topic_ledger.translate_errors(self, f"query '{context.query}' cannot begin to write"):
            store.enter(frame.schema.json())
        return KafkaBatches(store=store)

    @property
    def location(self) -> contract.SinkLocation:
        servers = tuple(server.strip() for server in self.bootstrap_servers.split(","))
        topic = ROW_TOPICS if self.topic is None else f"topic '{self.topic}'"
        shown = f"{topic} at {self.bootstrap_servers}"
        return contract.SinkLocation(name=self.topic or "", systems=servers, shown=shown, ledger=self.exactly_once)

    def identity(self) -> contract.Identity:
        """Without a topic of the sink's own, each row names one."""
        topics = [] if self.topic is None else [self.topic]
        return {"system": "kafka", "servers": contract.canonical_servers(self.bootstrap_servers), "topics": topics}

    def check_connection(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        try:
            self._require_topic(frame)
            if self.exactly_once:
                name = self.topic or ROW_TOPICS
                yield from misfits(context, name, lambda: topic_ledger.lines(self, context), kind="topic")
        except SinkError as error:
            yield from findings_of(error)

    def _require_topic(self, frame: DataFrame) -> None:
        with client(frame.sparkSession, self.bootstrap_servers, self.options, SinkError) as broker:
            broker.require_topics(() if self.topic is None else (self.topic,))

    def read_back(self, spark: SparkSession, context: contract.SinkContext) -> contract.Snapshot:
        """The messages of the query's transactions, as a consumer of committed messages finds them."""
        if self.facts.readable_back:
            return topic_ledger.read_back(self, spark, context)
        fault = "a topic holds every message that was ever written, and some twice: it is not a table to compare with"
        fix = "set delivery_guarantee to exactly-once, with topic and value json; or write into a database or files too"
        raise SinkError(code="HR402", what=fault, fix=fix)

    def explain_failure(self, message: str) -> contract.OptionError | None:
        unknown = _UNKNOWN_TOPIC.search(message) if self.topic is None else None
        if unknown is None:
            return super().explain_failure(message)
        fault = f"a row of the result names topic '{unknown[1]}', which is not there"
        return contract.OptionError(code="HR408", what=fault, fix=ADDRESS_FIX)

    @property
    def ledger(self) -> KafkaLedger | None:
        return KafkaLedger(target=self) if self.exactly_once else None

    @property
    def reset(self) -> contract.SinkReset:
        return KafkaReset(target=self) if self.exactly_once else super().reset

    @property
    def adoption(self) -> contract.SinkAdoption:
        return KafkaAdoption() if self.exactly_once else super().adoption

    def check_result(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        types = {name.lower(): type_ for name, type_ in frame.dtypes}
        if self.value == "json":
            for name in self.key:
                if name.lower() not in types:
                    fix = f"name columns of the result: {', '.join(frame.columns)}"
                    yield Finding(code="HR404", what=f"the key's column '{name}' is not in the result", fix=fix)
            return
        if "value" not in types:
            fault = f"the result has no column 'value' but {', '.join(frame.columns)}"
            yield Finding(code="HR404", what=fault, fix="name one so, or set value to json")
        if self.topic is None and "topic" not in types:
            fault = "no topic is named and the result has no column 'topic'"
            yield Finding(code="HR404", what=fault, fix="give the sink a topic or the result that column")
        wanted = {"key": ("string", "binary"), "value": ("string", "binary"), "topic": ("string",)}
        for name, kinds in {**wanted, "partition": ("int",)}.items():
            if name in types and types[name] not in kinds:
                fault = f"the result's column '{name}' is {types[name]} and Kafka takes {' or '.join(kinds)}"
                yield Finding(code="HR404", what=fault, fix=f"cast it: CAST({name} AS {kinds[0].upper()})")
        for name in frame.columns:
            if name.lower() not in COLUMNS:
                fault = f"the result's column '{name}' would be left out of the message"
                fix = f"leave it out of the query, or set value to json; a message has {', '.join(COLUMNS)}"
                yield Finding(code="HR404", what=fault, fix=fix)


@dataclass(frozen=True, kw_only=True)
class KafkaReset(contract.SinkReset):
    """Messages stay; each generation has a ledger of its own."""

    target: TopicTarget

    def judge_keeping(self, mode: contract.OutputMode) -> contract.KeptResult:
        why = "its messages stay, and every row comes again, in batches numbered from 0 on"
        return contract.KeptResult(possible=True, why=why)

    def hand_over(self, context: contract.SinkContext, generation: int, session: contract.Session) -> None:
        """Keep the mark of the change, so that neither an older driver nor a copy of the storage writes any more."""
        store = KafkaStore(self.target, context)
        with topic_ledger.translate_errors(self.target, f"the reset of query '{context.query}' cannot be entered"):
            store.enter_mark()


class KafkaAdoption(contract.SinkAdoption):
    """Messages that another program wrote have no ledger."""

    def possible(self, mode: contract.OutputMode) -> contract.KeptResult:
        why = "a ledger cannot be begun for messages that another program wrote: adopt with at-least-once"
        return contract.KeptResult(possible=False, why=why)


@dataclass(frozen=True)
class KafkaWriter(contract.Writer):
    """Spark's own Kafka sink."""

    sink: KafkaSink

    def serialize(self, frame: DataFrame) -> DataFrame:
        return as_messages(frame, self.sink.value, self.sink.key)

    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        options: dict[str, Any] = {**self.sink.options, "kafka.bootstrap.servers": self.sink.bootstrap_servers}
        if self.sink.topic is not None:
            options["topic"] = self.sink.topic
        if self.sink.async_progress is not None:
            options["asyncProgressTrackingEnabled"] = "true"
            options["asyncProgressTrackingCheckpointIntervalMs"] = str(_milliseconds(self.sink.async_progress))
        return stream_writer.format("kafka").options(**options)


def _milliseconds(text: str) -> int | None:
    try:
        return Duration.parse(text).milliseconds
    except ValueError:
        return None
