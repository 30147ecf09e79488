"""The options of the Kafka source: what is wrong with them, and what Spark calls them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from headrace.connectors.kafka.client import ISOLATION, isolation_level, server_faults, topic_faults
from headrace.connectors.options import no_length, no_pattern, not_above_zero, silent_loss, spark_options
from headrace.contract import Failure, OptionError
from headrace.contract.connector import InProject
from headrace.errors import nearest, reason
from headrace.spark import ddl

DEFAULT_MAX_OFFSETS = 1_000_000
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
# What Headrace sets itself, so that a checkpoint and a prefix mean what they say.
_WHICH = ("subscribe", "subscribe_pattern", "assign")
_LIMITS = ("max_offsets_per_trigger", "min_offsets_per_trigger", "min_partitions")
_OTHERS = ("starting_offsets", "starting_timestamp", "max_trigger_delay", "fail_on_data_loss", "include_headers")
_OWN = {
    **{name.replace("_", ""): name for name in (*_WHICH, *_LIMITS, *_OTHERS)},
    **{"kafka.bootstrap.servers": "bootstrap_servers", "endingoffsets": "", "endingtimestamp": ""},
}
# What Debezium's connector says of how it writes values; needed where messages have no schema.
DEBEZIUM_SETTINGS = {
    "decimal.handling.mode": ("precise", "string", "double"),
    "time.precision.mode": (
        *("adaptive", "adaptive_time_microseconds", "connect"),
        *("isostring", "microseconds", "nanoseconds"),
    ),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "replace.null.with.default": ("true", "false"),
    "event.converting.failure.handling.mode": ("fail", "warn", "skip"),
}
# Spark sets these itself and refuses them. Source: Kafka integration guide, "Kafka Specific Configurations".
_REFUSED = ("kafka.group.id", "kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.interceptor.classes")
_REFUSED_ENDS = (".key.deserializer", ".value.deserializer")
# How messages are refused: mark, column, type or nothing, topic/partition/offset, and the value, as `connectors/values`
# writes them.
_MESSAGE = r" `(?P<column>[^`]*)` (?:`(?P<type>[^`]+)` )?(?P<place>[\w.-]+/\d+/\d+)(?: `(?P<value>[^`]*)`)?"
_QUARANTINE = "set on_bad_row to quarantine, and such messages are quarantined"
VALUE_FAILURES = (
    Failure(
        code="HR363",
        pattern=r"HEADRACE_UNREADABLE `(?P<fault>has no column [^`]*)` (?P<place>[\w.-]+/\d+/\d+)",
        what="the table of the message {place} (topic/partition/offset) is not the one of the schema: it {fault}",
        fix=f"leave the column out of the schema, or rename it there, and start again; {_QUARANTINE}",
    ),
    Failure(
        code="HR362",
        pattern=r"HEADRACE_UNREADABLE `(?P<fault>[^`]*)` (?P<place>[\w.-]+/\d+/\d+)",
        what="the message {place} (topic/partition/offset) {fault}",
        fix=f"correct what writes the topic, or the source's options; {_QUARANTINE}",
    ),
    Failure(
        code="HR302",
        pattern=f"HEADRACE_(?:MALFORMED|ENCODING){_MESSAGE}",
        what="the value of the message {place} (topic/partition/offset) does not decode",
        fix=f"{_QUARANTINE}; or correct the schema and start again",
    ),
    Failure(
        code="HR302",
        pattern=f"HEADRACE_MISSING_VALUE{_MESSAGE}",
        what="the message {place} (topic/partition/offset) has no value of '{column}', which the schema says is "
        "NOT NULL",
        fix=f"{_QUARANTINE}; or leave out NOT NULL and start again",
    ),
    Failure(
        code="HR302",
        pattern=f"HEADRACE_MISFIT{_MESSAGE}",
        what="the message {place} (topic/partition/offset) does not fit the schema: '{value}' in column '{column}' is "
        "no {type}",
        fix=f"{_QUARANTINE}; or correct the schema and start again",
    ),
    Failure(
        code="HR361",
        pattern=f"HEADRACE_INEXACT{_MESSAGE}",
        what="a value of the message {place} (topic/partition/offset) would be changed: '{value}' in column "
        "'{column}' is not exactly a {type}",
        fix="declare a type that holds it, or STRING; or set inexact to round, and what does not fit is cut or "
        f"rounded; or {_QUARANTINE}",
    ),
    Failure(
        code="HR361",
        pattern=f"HEADRACE_INFINITE{_MESSAGE}",
        what="a number of the message {place} (topic/partition/offset) in column '{column}' ({value}) would be "
        "Infinity: it is too large for the type",
        fix=f"declare a DECIMAL or STRING that holds it; or {_QUARANTINE}",
    ),
)
# A schema, or the path of a file that holds it.
SchemaOrFile: TypeAlias = Annotated[str, InProject("path", when="has_schema_file")]


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """The options of the Kafka source."""

    bootstrap_servers: str
    subscribe: str | tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    value: Literal["raw", "text", "json", "avro", "debezium"] = "raw"
    schema: SchemaOrFile | None = None
    debezium_settings: Mapping[str, str] = field(default_factory=dict)
    change_keys: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    starting_offsets: str | Mapping[str, Mapping[int, int]] = "earliest"
    starting_timestamp: int | None = None
    max_offsets_per_trigger: int | Literal["unlimited"] | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: str | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    on_bad_row: Literal["fail", "quarantine"] = "fail"
    inexact: Literal["bad-row", "round"] = "bad-row"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def problems(self) -> Iterator[OptionError]:
        """Every fault of the options."""
        named = [name for name in _WHICH if getattr(self, name) is not None]
        if len(named) != 1:
            problem = f"{' and '.join(named)} are both given" if named else "no topic is named"
            yield OptionError(what=problem, fix="give one of subscribe, subscribe_pattern and assign")
        yield from server_faults(self.bootstrap_servers)
        for name in self.topics():
            yield from topic_faults(name, "correct the topic's name; several are a list: [a, b]")
        for name, numbers in (self.assign or {}).items():
            if not numbers or min(numbers) < 0:
                wrong = f"the partition {min(numbers)}" if numbers else "no partition"
                fault, fix = f"assign names {wrong} of topic '{name}'", "number partitions from 0: {topic: [0, 1]}"
                yield OptionError(what=fault, fix=fix)
        yield from no_length("max_trigger_delay", self.max_trigger_delay, "15m")
        yield from _values(self)
        yield from _offsets(self)
        yield from not_above_zero(self, *_LIMITS)
        if self.isolation_level not in ISOLATION_LEVELS:
            problem = f"{ISOLATION} is '{self.isolation_level}'"
            yield OptionError(what=problem, fix=f"write {' or '.join(ISOLATION_LEVELS)}")
        for name in self.topic_ids if self.subscribe_pattern is None else ():
            if name not in self.topics():
                fix = nearest(name, self.topics())
                yield OptionError(what=f"topic_ids names '{name}', which is not read", fix=fix)
        for name in self.options:
            own = _OWN.get(name.lower())
            if own is not None:
                fix = f"give it as {own}" if own else "leave it out: a stream has no end"
                yield OptionError(what=f"options holds '{name}', which Headrace sets itself", fix=fix)
            elif name.lower() in _REFUSED or name.lower().endswith(_REFUSED_ENDS):
                yield OptionError(what=f"options holds '{name}', which Spark refuses", fix="leave it out")
        yield from silent_loss(self.fail_on_data_loss, "messages")

    @property
    def isolation_level(self) -> str:
        """Which messages are read: committed ones, unless the options say otherwise."""
        return isolation_level(self.options)

    @property
    def has_schema_file(self) -> bool:
        """Whether `schema` is the path of a file, and not the schema itself."""
        return self.value == "avro" and self.schema is not None and not _is_avro(self.schema)

    def topics(self) -> tuple[str, ...]:
        """The topics that are named; none for a pattern."""
        if self.subscribe is not None:
            given = self.subscribe.split(",") if isinstance(self.subscribe, str) else self.subscribe
            return tuple(name.strip() for name in given)
        return tuple(self.assign or ())

    def reads_topic(self, topic: str, partition: int) -> bool:
        """Whether a partition of a topic is one that the options name."""
        if self.subscribe_pattern is not None:
            return re.fullmatch(self.subscribe_pattern, topic) is not None
        return topic in self.topics() and (self.assign is None or partition in self.assign[topic])

    def reader_options(self) -> dict[str, str]:
        """Return the options that a batch and a stream have in common."""
        return {
            **self.options,
            ISOLATION: self.isolation_level,
            "kafka.bootstrap.servers": self.bootstrap_servers,
            **spark_options(self, "include_headers", "fail_on_data_loss"),
        }

    def stream_options(self) -> dict[str, str]:
        """The options of Spark's streaming source."""
        offsets = self.starting_offsets
        same = ("subscribe_pattern", "starting_timestamp", "max_trigger_delay", *_LIMITS)
        options = {
            "maxOffsetsPerTrigger": str(DEFAULT_MAX_OFFSETS),
            **spark_options(self, *same),
            "startingOffsets": offsets if isinstance(offsets, str) else json.dumps(offsets, default=dict),
        }
        if self.subscribe is not None:
            options["subscribe"] = ",".join(self.topics())
        if self.assign is not None:
            options["assign"] = json.dumps(self.assign, default=dict)
        if self.max_offsets_per_trigger == "unlimited":
            del options["maxOffsetsPerTrigger"]
        return self.reader_options() | options


def _values(source: KafkaOptions) -> Iterator[OptionError]:
    if source.value in ("json", "avro", "debezium") and source.schema is None:
        example = "schema='event.avsc'" if source.value == "avro" else "schema='id BIGINT, time TIMESTAMP'"
        yield OptionError(what=f"value is {source.value} and there is no schema", fix=f"give {example}")
    if source.value == "avro" and source.schema is not None:
        yield from _avro(source.schema)
    if source.value in ("json", "debezium") and source.schema is not None:
        yield from ddl.problems(source.schema)
    yield from _debezium(source)
    if source.value in ("raw", "text") and source.schema is not None:
        yield OptionError(what=f"a schema has no meaning with value {source.value}", fix="leave it out")
    if source.value == "raw" and source.keep:
        yield OptionError(what="keep has no meaning with value raw", fix="leave it out: all columns are there")
    if source.value == "raw" and source.on_bad_row == "quarantine":
        yield OptionError(what="with value raw every message fits", fix="leave on_bad_row out")
    if source.value not in ("json", "debezium") and source.inexact != "bad-row":
        yield OptionError(what=f"inexact has no meaning with value {source.value}", fix="leave it out")
    columns = COLUMNS if source.include_headers else COLUMNS[:-1]
    for name in source.keep:
        if name not in columns:
            yield OptionError(what=f"keep names '{name}'", fix=f"the columns are {', '.join(columns)}")


def _debezium(source: KafkaOptions) -> Iterator[OptionError]:
    if source.value != "debezium":
        for option in ("debezium_settings", "change_keys"):
            if getattr(source, option):
                fault = f"{option} has no meaning with value {source.value}"
                yield OptionError(what=fault, fix="leave it out, or write value: debezium")
        return
    for name, value in source.debezium_settings.items():
        if name not in DEBEZIUM_SETTINGS:
            fix = nearest(name, DEBEZIUM_SETTINGS)
            yield OptionError(what=f"debezium_settings names '{name}', which decides about no value", fix=fix)
        elif value not in DEBEZIUM_SETTINGS[name]:
            fix = f"write one of {', '.join(DEBEZIUM_SETTINGS[name])}"
            yield OptionError(what=f"debezium_settings gives {name} the value '{value}'", fix=fix)
    if source.schema is not None and not list(ddl.problems(source.schema)):
        for column in ddl.columns(source.schema):
            if column["name"].startswith("__"):
                fault = f"the schema declares '{column['name']}': names with '__' are Debezium's and Headrace's own"
                yield OptionError(what=fault, fix="leave it out")
            elif re.search("decimal|date|timestamp|binary", json.dumps(column["type"]).partition("{")[2]):
                fault = f"column '{column['name']}' has a part of a type that Debezium writes in several ways"
                yield OptionError(what=fault, fix="declare STRING, which holds the part of the message as it is")


def _is_avro(text: str) -> bool:
    return text.lstrip().startswith(("{", "[", '"'))


def avro_text(schema: str) -> str | OptionError:
    """The schema that is given, or that the file of this name holds."""
    if _is_avro(schema):
        return schema
    try:
        return Path(schema).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        fault = f"the Avro schema '{schema}' cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        return OptionError(what=fault, fix="give schema the path of an .avsc file, or the JSON itself")


def _avro(schema: str) -> Iterator[OptionError]:
    text = avro_text(schema)
    if isinstance(text, OptionError):
        yield text
        return
    try:
        json.loads(text)
    except ValueError as error:
        yield OptionError(what=f"the Avro schema cannot be read: {reason(error)}", fix="correct it at that place")


def _offsets(source: KafkaOptions) -> Iterator[OptionError]:
    given = source.starting_offsets
    if isinstance(given, str) and given not in ("latest", "earliest"):
        fix = "write earliest, latest, or {topic: {partition: offset}}"
        yield OptionError(what=f"starting_offsets is '{given}'", fix=fix)
    for topic in given if not isinstance(given, str) and source.subscribe_pattern is None else ():
        if topic not in source.topics():
            fix = nearest(topic, source.topics())
            yield OptionError(what=f"starting_offsets names '{topic}', which is not read", fix=fix)
    yield from no_pattern("subscribe_pattern", source.subscribe_pattern, "orders-.*")
