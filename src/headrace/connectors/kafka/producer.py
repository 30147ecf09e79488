"""One producer with transactions, which fences off older ones, and the rows that it writes as messages."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headrace.connectors.kafka.client import ADDRESS_FIX
from headrace.contract import SinkContext
from headrace.errors import SinkError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ANSWER_SECONDS = 30.0
_PREFIX = "kafka."
# Options of Java's client that librdkafka has none for.
_JAVA_ONLY = ("ssl.truststore.", "ssl.keystore.type", "key.serializer", "value.serializer", "partitioner.class")
# By the type of a store, the options of librdkafka that stand for one of Java's client. A file of type PEM has the key
# and the certificates; librdkafka reads a keystore of type PKCS12 itself, and no JKS.
_PEM = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
}
_ACCOUNT = re.compile(r'username="(?P<username>[^"]*)"[^;]*password="(?P<password>[^"]*)"')
# _FATAL is what the client answers to every call once it has seen one of the others, or another end of its producer.
_FENCED = ("_FATAL", "_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_PASSING = (
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_STATE"),
    *("REQUEST_TIMED_OUT", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
    *("CONCURRENT_TRANSACTIONS", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING"),
    *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "LEADER_NOT_AVAILABLE"),
)
_NO_ADDRESS = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION")
# For what the client would print by itself: that it is fenced off becomes a finding.
_SILENT = logging.getLogger("headrace.kafka")
# Spark would cut timestamps to milliseconds.
TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
_WRITE = {**TIMES, "ignoreNullFields": "false"}
# Written into each message of a transaction: whose it is, and of which batch.
HEADER = "headrace"
ROW_TOPICS = "the topics that the rows name"
# Of the messages that are read back, before they are rows again.
BATCH = "__headrace_batch"


_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def client_settings(servers: str, options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, Any]:
    """Settings of librdkafka: Spark's `kafka.*` options where both clients have them, and the producer's `own`."""
    settings: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
    for name, value in options.items():
        short = name[len(_PREFIX) :]
        if not name.lower().startswith(_PREFIX):
            continue
        store = ".".join(short.split(".")[:2])
        if short in _PEM and options.get(f"{_PREFIX}{store}.type") == "PEM":
            settings.update(dict.fromkeys(_PEM[short], value))
            continue
        if short.startswith(_JAVA_ONLY):
            continue
        if short == "sasl.jaas.config":
            account = _ACCOUNT.search(value)
            settings.update({f"sasl.{part}": text for part, text in (account.groupdict() if account else {}).items()})
        else:
            settings[short] = value
    return {**settings, **own}


def transactional_id(context: SinkContext) -> str:
    """The id by which the broker fences off older drivers of the query, those of former generations too."""
    return f"headrace/{context.application}/{context.query_id}"


def connect(settings: Mapping[str, Any], identity: str) -> Producer:
    """A producer that has fenced older ones off, whose open transactions are aborted. Raises KafkaException."""
    from confluent_kafka import Producer

    # Messages of one key go where Java's clients, and Spark's own sink, put them.
    fixed = {"transactional.id": identity, "enable.idempotence": True, "partitioner": "murmur2_random"}
    producer = Producer({"linger.ms": 20, "reconnect.backoff.max.ms": 1000, **settings, **fixed}, logger=_SILENT)
    producer.init_transactions(ANSWER_SECONDS)
    return producer


def fault(error: Exception) -> KafkaError | None:
    """Return the error of Kafka's client behind an exception; None: it comes from something else."""
    from confluent_kafka import KafkaError, KafkaException

    # A callback that is called while the client raises an error gives it another face.
    cause = error.__cause__ if isinstance(error, SystemError) else error
    answer = cause.args[0] if isinstance(cause, KafkaException) and cause.args else None
    return answer if isinstance(answer, KafkaError) else None


def is_fenced(error: Exception) -> bool:
    """Whether the broker takes nothing more of this producer: most often, because another one has begun."""
    answer = fault(error)
    return answer is not None and answer.name() in _FENCED


def is_transient(error: Exception) -> bool:
    """Whether the batch may be tried again, with a new producer that asks the ledger what is in."""
    answer = fault(error)
    return answer is not None and (answer.retriable() or answer.name() in (*_FENCED, *_PASSING))


def with_address(error: KafkaError, topic: str, partition: int | None) -> KafkaError:
    """The error of a message, with its address if that is what is wrong; such an error stays."""
    from confluent_kafka import KafkaError

    if error.name() not in _NO_ADDRESS:
        return error
    named = f"topic '{topic}'" if partition in (None, -1) else f"partition {partition} of topic '{topic}'"
    return KafkaError(error.code(), f"a row names {named}: {error.str()}")


def explain(error: Exception, place: str, problem: str) -> Exception:
    """An exception of Kafka's client as a SinkError: what was not done, and why; another one as it is."""
    answer = fault(error)
    if answer is None:
        return error
    if answer.name() in ("_INVALID_ARG", "_CONFLICT"):
        fix = "correct the options, which Kafka's C client reads here: its names go into producer"
        return SinkError(code="HR113", what=f"Kafka's client refuses an option: {answer.str()}", fix=fix)
    reason = answer.str().rstrip(".")
    fix = "start the broker, or correct bootstrap_servers; then start again: the run resumes with this batch"
    if "AUTHORIZATION" in answer.name():
        fix = "let the user write the topic and its ledger topic, and use the transactional id 'headrace/*'"
    elif answer.name() == "MSG_SIZE_TOO_LARGE":
        fix = "raise max.message.bytes of the topic and message.max.bytes of producer, or make the rows smaller"
    elif answer.name() in _NO_ADDRESS:
        return SinkError(code="HR408", what=f"{problem} at {place}: {reason}", fix=ADDRESS_FIX)
    return SinkError(code="HR434", what=f"{problem} at {place}: {reason}", fix=fix)


def as_messages(frame: DataFrame, value: Literal["raw", "json"], key: Sequence[str]) -> DataFrame:
    """The rows as messages: `raw` as they are, else an object of every column, and the key's columns as the key."""
    from pyspark.sql import functions as F

    if value == "raw":
        return frame
    body = F.to_json(F.struct("*"), _WRITE).alias("value")
    if not key:
        return frame.select(body)
    if len(key) == 1:
        return frame.select(F.col(f"`{key[0]}`").cast("string").alias("key"), body)
    return frame.select(F.to_json(F.struct(*[F.col(f"`{name}`") for name in key]), _WRITE).alias("key"), body)


def header(life: str, batch: int) -> bytes:
    """The value of HEADER."""
    return f"{life}:{batch}".encode()


def as_rows(messages: DataFrame, life: str, last: int, schema: StructType) -> DataFrame:
    """The rows of the life's batches up to `last`, with one more column, BATCH, of JSON messages with their headers."""
    from pyspark.sql import functions as F

    ours = F.filter("headers", lambda entry: entry["key"] == HEADER)
    mark = F.split(F.element_at(ours, -1)["value"].cast("string"), ":")
    rows = messages.where(F.size(ours) > 0).select(
        F.from_json(F.col("value").cast("string"), schema, TIMES).alias("row"),
        mark[0].alias("life"),
        mark[1].cast("long").alias(BATCH),
    )
    return rows.where((F.col("life") == life) & (F.col(BATCH) <= last)).select("row.*", BATCH)


def newest(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The newest row of each key."""
    from pyspark.sql import functions as F

    columns = [name for name in rows.columns if name != BATCH]
    whole = F.max_by(F.struct(*[F.col(f"`{name}`") for name in columns]), F.col(BATCH)).alias("row")
    return rows.groupBy(*[F.col(f"`{name}`") for name in key]).agg(whole).select("row.*")


@dataclass(frozen=True, kw_only=True)
class TopicTarget:
    """The options of the Kafka sink; without a topic each row names its own."""

    bootstrap_servers: str
    topic: str | None = None
    value: Literal["raw", "json"] = "json"
    key: tuple[str, ...] = ()
    async_progress: str | None = None
    delivery_guarantee: Literal["at-least-once", "exactly-once"] = "at-least-once"
    ledger_topic: str | None = None
    retry_seconds: float = 60.0
    producer: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def ledger_place(self) -> str:
        return self.ledger_topic or f"{self.topic}.headrace"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of Kafka's C client."""
        return client_settings(self.bootstrap_servers, self.options, self.producer)
