"""Write the result into Kafka, each row as a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.connectors.kafka.client import SERVERS_FIX, client, servers_fault, topic_fault
from headrace.connectors.kafka.failures import FAILURES
from headrace.connectors.not_asked import findings_of
from headrace.contract import (
    OUTPUT_MODES,
    Failure,
    Identity,
    OptionError,
    OutputMode,
    Sink,
    SinkContext,
    SinkFacts,
    SinkLocation,
    Snapshot,
    Writer,
    canonical_servers,
)
from headrace.errors import Finding, SinkError
from headrace.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COLUMNS = ("key", "value", "topic", "partition", "headers")
_OWN = ("kafka.bootstrap.servers", "topic", "includeheaders")
_REFUSED = ("kafka.key.serializer", "kafka.value.serializer")


@dataclass(frozen=True, kw_only=True)
class KafkaSink(Sink):
    """A message for each row, into `topic` or that which the row's own column `topic` names.

    Source: Structured Streaming + Kafka integration guide, "Writing Data to Kafka". `value` says what the value is
    made of: `raw` takes the result's columns as Spark wants them (value, and if they are there key, topic, partition,
    headers), `json` makes an object of every column. With `json`, `key` names the columns of the message's key: one
    is written as text, several as a JSON object. At least once: a batch that comes again is written again.

    async_progress: how often progress is written, at the side of the batches, for a stateless query that must be
        quick: batches do not wait for it, and after a crash those of this length of time come again.
    """

    jars: ClassVar[tuple[str, ...]] = ("kafka",)
    failures: ClassVar[tuple[Failure, ...]] = FAILURES
    layout_options: ClassVar[tuple[str, ...]] = ("value",)
    bootstrap_servers: str
    topic: str | None = None
    value: Literal["raw", "json"] = "json"
    key: tuple[str, ...] = ()
    async_progress: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def begins_anywhere(self) -> bool:
        return True

    @property
    def facts(self) -> SinkFacts:
        return SinkFacts(
            modes=frozenset(OUTPUT_MODES),
            transactional=False,
            idempotent=False,
            continuous=self.async_progress is None,
            real_time=self.async_progress is None,
            async_progress=self.async_progress is not None,
        )

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        if (wrong := servers_fault(self.bootstrap_servers)) is not None:
            yield OptionError(code="HR430", what=wrong, fix=SERVERS_FIX)
        if self.topic is not None and (wrong := topic_fault(self.topic)) is not None:
            yield OptionError(code="HR430", what=wrong, fix="correct the topic's name")
        if self.value == "raw" and self.key:
            yield OptionError(
                code="HR430", what="key has no meaning with value raw", fix="give the result a column key"
            )
        if self.value == "json" and self.topic is None:
            yield OptionError(
                code="HR430", what="no topic is named", fix="give topic, or value: raw and a column topic"
            )
        if self.async_progress is not None and _milliseconds(self.async_progress) is None:
            what = f"async_progress '{self.async_progress}' is no length of time"
            yield OptionError(code="HR430", what=what, fix="write a number and its unit, as in 500ms or 1s")
        for name in self.options:
            if name.lower() in _OWN:
                what = f"options holds '{name}', which Headrace sets itself"
                yield OptionError(code="HR430", what=what, fix="give bootstrap_servers and topic as such")
            if name.lower() in _REFUSED:
                what = f"options holds '{name}', which Spark refuses"
                yield OptionError(code="HR430", what=what, fix="leave it out: rows are written as texts or bytes")

    def open(self, frame: DataFrame, context: SinkContext) -> KafkaWriter:
        """Compare the result's columns with what Kafka takes, and ask the broker for the topic."""
        if findings := list(self.check_result(frame, context)):
            raise SinkError(findings)
        self._require_topic(frame)
        return KafkaWriter(self)

    @property
    def location(self) -> SinkLocation:
        servers = tuple(server.strip() for server in self.bootstrap_servers.split(","))
        topic = "the topics that the rows name" if self.topic is None else f"topic '{self.topic}'"
        return SinkLocation(name=self.topic or "", systems=servers, shown=f"{topic} at {self.bootstrap_servers}")

    def identity(self) -> Identity:
        """Without a topic of the sink's own, each row names one."""
        topics = [] if self.topic is None else [self.topic]
        return {"system": "kafka", "servers": canonical_servers(self.bootstrap_servers), "topics": topics}

    def check_connection(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        try:
            self._require_topic(frame)
        except SinkError as error:
            yield from findings_of(error)

    def _require_topic(self, frame: DataFrame) -> None:
        with client(frame.sparkSession, self.bootstrap_servers, self.options, SinkError) as broker:
            broker.require_topics(() if self.topic is None else (self.topic,))

    @property
    def readable_back(self) -> bool:
        return False

    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        what = "a topic holds every message that was ever written, and some twice: it is no table to compare with"
        fix = "write the same query into a database or files as well, and verify that"
        raise SinkError(Finding(code="HR402", what=what, fix=fix))

    def check_result(self, frame: DataFrame, context: SinkContext) -> Iterator[Finding]:
        types = {name.lower(): type_ for name, type_ in frame.dtypes}
        if self.value == "json":
            for name in self.key:
                if name.lower() not in types:
                    fix = f"name columns of the result: {', '.join(frame.columns)}"
                    yield Finding(code="HR431", what=f"the key's column '{name}' is not in the result", fix=fix)
            return
        if "value" not in types:
            what = f"the result has no column 'value' but {', '.join(frame.columns)}"
            yield Finding(code="HR431", what=what, fix="name one so, or set value to json")
        if self.topic is None and "topic" not in types:
            what = "no topic is named and the result has no column 'topic'"
            yield Finding(code="HR431", what=what, fix="give the sink a topic or the result that column")
        wanted = {"key": ("string", "binary"), "value": ("string", "binary"), "topic": ("string",)}
        for name, kinds in {**wanted, "partition": ("int",)}.items():
            if name in types and types[name] not in kinds:
                what = f"the result's column '{name}' is {types[name]} and Kafka takes {' or '.join(kinds)}"
                yield Finding(code="HR431", what=what, fix=f"cast it: CAST({name} AS {kinds[0].upper()})")
        for name in frame.columns:
            if name.lower() not in COLUMNS:
                what = f"the result's column '{name}' would be left out of the message"
                fix = f"leave it out of the query, or set value to json; a message has {', '.join(COLUMNS)}"
                yield Finding(code="HR431", what=what, fix=fix)


@dataclass(frozen=True)
class KafkaWriter(Writer):
    """Spark's own Kafka sink."""

    sink: KafkaSink

    def serialize(self, frame: DataFrame) -> DataFrame:
        """The rows as messages."""
        from pyspark.sql import functions as F

        if self.sink.value == "raw":
            return frame
        value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")
        if not self.sink.key:
            return frame.select(value)
        if len(self.sink.key) == 1:
            return frame.select(F.col(f"`{self.sink.key[0]}`").cast("string").alias("key"), value)
        key = F.to_json(F.struct(*[F.col(f"`{name}`") for name in self.sink.key]), {"ignoreNullFields": "false"})
        return frame.select(key.alias("key"), value)

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
