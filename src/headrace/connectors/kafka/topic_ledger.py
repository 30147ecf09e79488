"""Which batches are in a topic, kept in a compacted topic next to it and written in the rows' own transaction."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.checkpoint import PlannedBatch
from headrace.connectors.exactly_once import KeptLine, LinesLedger, TextLedger, is_applied, plans
from headrace.connectors.exactly_once.acceptance import KEPT
from headrace.connectors.exactly_once.lake import no_result
from headrace.connectors.kafka import producer
from headrace.connectors.kafka.client import client
from headrace.connectors.kafka.prefix import ends, span_options
from headrace.connectors.kafka.producer import ANSWER_SECONDS, BATCH, TopicTarget, as_rows, newest
from headrace.contract import Mark, SinkContext, Snapshot
from headrace.errors import CheckpointError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The offset behind the last message, by topic and partition.
Ends: TypeAlias = Mapping[tuple[str, int], int]
# Small segments: what is no longer needed is compacted away within minutes, and a start reads a few megabytes.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
# A broker takes messages of a megabyte; a batch whose plan is longer cannot be planned again from the ledger.
LONGEST = 600_000
# Longer than a transaction of another query may stay open over the same ledger topic.
PATIENCE_SECONDS = 90.0


class AnotherQuery(SinkError):
    """Another query of the same name has a ledger in the topic, as that of a copy of the storage."""


@dataclass(frozen=True, kw_only=True)
class TopicLedger:
    """What the ledger topic holds of one generation of a query.

    life: drawn at its first start, and written into the header of each message. begins: where its first message may be.
    ends: where its newest batch ends, as far as it has written.
    """

    ledger: TextLedger
    life: str
    begins: Ends = field(default_factory=dict)
    ends: Ends = field(default_factory=dict)

    @classmethod
    def of(cls, records: Mapping[str, bytes], context: SinkContext) -> TopicLedger | None:
        """The ledger in `records`, by their keys; None: they hold none of the context's generation.

        Raises SinkError for a ledger of version 0.1.0, and AnotherQuery.
        """
        _require_one_query(records, context)
        head = records.get(head_key(context))
        if head is None:
            return None
        facts = json.loads(head)
        slots = [records.get(f"{key_of(context)}/{slot}") for slot in range(KEPT)]
        kept = sorted((json.loads(slot) for slot in slots if slot is not None), key=lambda slot: slot["line"]["batch"])
        ledger = TextLedger(**facts["ledger"], lines=tuple(KeptLine.from_dict(slot["line"]) for slot in kept))
        return cls(
            ledger=ledger,
            life=facts["life"],
            begins=_places(facts["begins"]),
            ends=_places(kept[-1]["ends"]) if kept else {},
        )

    @classmethod
    def begin(
        cls, before: TopicLedger | None, context: SinkContext, name: str, result: str, begins: Ends
    ) -> TopicLedger:
        """The ledger with the epoch of a new driver; raises CheckpointError where its batches are not the checkpoint's.

        The result may have other columns than before: each message names its own.
        """
        if before is None:
            ledger = TextLedger.start(None, context, name, result, kind="topic")
            return cls(ledger=ledger, life=uuid.uuid4().hex, begins=begins)
        ledger = TextLedger.start(before.ledger.dumps(), context, name, before.ledger.result, kind="topic")
        return replace(before, ledger=replace(ledger, result=result))

    def with_batch(self, line: KeptLine, ends: Ends) -> TopicLedger:
        """The ledger once the batch of `line` is in, whose messages end at `ends`."""
        return replace(self, ledger=self.ledger.with_batch(line), ends={**self.ends, **ends})

    def head(self, context: SinkContext) -> dict[str, bytes]:
        """Key and value of the message that says whose the ledger is."""
        facts = {
            "ledger": {name: value for name, value in vars(self.ledger).items() if name != "lines"},
            "life": self.life,
            "begins": _rows(self.begins),
        }
        return {head_key(context): json.dumps(facts).encode()}

    def lines(self, context: SinkContext, lines: Iterable[KeptLine]) -> dict[str, bytes]:
        """Key and value of the message of each line, which replaces that of an older batch."""
        records = {}
        for line in lines:
            kept = replace(line, planned=None) if len(line.planned or "") > LONGEST else line
            value = json.dumps({"line": kept.as_dict(), "ends": _rows(self.ends)}).encode()
            records[f"{key_of(context)}/{line.batch % KEPT}"] = value
        return records


def mark_in(records: Mapping[str, bytes], context: SinkContext) -> Mark | None:
    """Return the newest change of the query that the ledger topic has seen."""
    kept = records.get(_mark_key(context))
    return None if kept is None else Mark(**json.loads(kept))


def mark_record(context: SinkContext, mark: Mark) -> dict[str, bytes]:
    """Key and value of the message that keeps the mark of a change."""
    return {_mark_key(context): json.dumps(asdict(replace(mark, tokens={}))).encode()}


def _mark_key(context: SinkContext) -> str:
    return f"{query_key(context)}/change"


def query_key(context: SinkContext) -> str:
    """Return the beginning of the keys of a query's records."""
    return f"{context.application}/{context.query_id}"


def key_of(context: SinkContext) -> str:
    """Return the beginning of the keys of a generation's records."""
    return f"{query_key(context)}/{context.generation}"


def head_key(context: SinkContext) -> str:
    """Return the key of the message that says whose the ledger is."""
    return f"{key_of(context)}/head"


def has_lines(records: Mapping[str, bytes], beginning: str) -> bool:
    """Whether there is a line of a batch whose key has this beginning."""
    return any(key.startswith(f"{beginning}/") and key.rpartition("/")[2].isdigit() for key in records)


def _require_one_query(records: Mapping[str, bytes], context: SinkContext) -> None:
    """Raise AnotherQuery where another query of this name has a ledger there.

    Its head alone is of a first start that died before its second look, if the context's own ledger has a line: each
    line comes after a look at which there was no other head. Version 0.1.0 knew a query by its name alone.
    """
    heads = [json.loads(text).get("ledger", {}) for key, text in records.items() if key.endswith("/head")]
    if any(head.get("query") == context.query and "query_id" not in head for head in heads):
        fault = f"the ledger topic has batches of query '{context.query}' in the form of 0.1.0, which is not read"
        raise SinkError(code="HR407", what=fault, fix="write to another topic, or name another ledger_topic")
    own, is_begun = (context.application, context.query), has_lines(records, key_of(context))
    named = [head for head in heads if "query_id" in head and (head["application"], head["query"]) == own]
    others = [f"{own[0]}/{head['query_id']}" for head in named if head["query_id"] != context.query_id]
    if any(not is_begun or has_lines(records, other) for other in others):
        fault = (
            f"the ledger topic has batches of another query '{context.query}' of this project: its storage was copied "
        )
        fault += "before the query had run"
        fix = "start the query over the storage that it runs over; or write to another topic, with another ledger_topic"
        raise AnotherQuery(code="HR407", what=fault, fix=fix)


def read(settings: Mapping[str, Any], topic: str, *, own: str | None = None) -> dict[str, bytes]:
    """The newest committed value of each key. Raises KafkaException, and SinkError where a transaction stays open.

    Messages that were committed behind an open transaction of another query are shown only when that has ended: the
    topic is read up to its very end, not to where it can be read by now. own: what the keys of the reader's query begin
    with; where only its transaction is open, nothing else of it lies behind, and that one needs no wait.
    """
    records: dict[str, bytes] = {}
    if not partitions(settings, topic):
        return records
    end = ends(settings, [(topic, 0)]).get((topic, 0), 0)
    limit = time.monotonic() + PATIENCE_SECONDS
    for reached, key, value in _records(settings, topic, 0, "read_committed"):
        if key is None:
            if reached >= end or (reached >= 0 and own and _is_open_only_of(settings, topic, own, reached, end)):
                break
        elif value is None:
            records.pop(key, None)
        else:
            records[key] = value
        if time.monotonic() > limit:
            fault = f"the ledger topic '{topic}' cannot be read to its end: a transaction there stays open"
            fix = "stop the program that holds it, or wait until the broker aborts it; then start again"
            raise SinkError(code="HR434", what=fault, fix=fix)
    return records


def _is_open_only_of(settings: Mapping[str, Any], topic: str, own: str, first: int, end: int) -> bool:
    """Whether the messages from `first` on, an open transaction's first, are all of the keys of `own`."""
    for reached, key, _ in _records(settings, topic, first, "read_uncommitted"):
        if key is None and reached >= end:
            return True
        if key is not None and not key.startswith(f"{own}/"):
            return False
    return False


def _records(
    settings: Mapping[str, Any], topic: str, first: int, level: str
) -> Iterator[tuple[int, str | None, bytes | None]]:
    """Offset, key and value of each message.

    Each time that no more can be read by now, the offset alone of what comes next; -1 while that is not known.
    """
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    more = {"group.id": "headrace", "isolation.level": level, "enable.auto.commit": False}
    more |= {"auto.offset.reset": "earliest"}  # The first messages may be compacted away.
    consumer = Consumer({**settings, **more, "enable.partition.eof": True, "fetch.wait.max.ms": 50})
    reached = -1
    try:
        consumer.assign([TopicPartition(topic, 0, first)])
        while True:
            message = consumer.poll(1.0)
            if message is None:
                yield reached, None, None
            elif (error := message.error()) is None:
                reached = -1
                yield message.offset() or 0, (message.key() or b"").decode(), message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                reached = message.offset() or 0
                yield reached, None, None
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def partitions(settings: Mapping[str, Any], topic: str) -> list[tuple[str, int]]:
    """The partitions of a topic; none if it is not there. Raises KafkaException."""
    from confluent_kafka.admin import AdminClient

    description = AdminClient(dict(settings)).list_topics(topic, ANSWER_SECONDS).topics[topic]
    return [] if description.error is not None else [(topic, number) for number in sorted(description.partitions)]


def require_ledger(target: TopicTarget) -> None:
    """Make the ledger topic where there is none. Raises KafkaException, and SinkError where it would lose lines."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

    settings, topic = target.settings, target.ledger_place
    admin = AdminClient(dict(settings))
    if not partitions(settings, topic):
        made = NewTopic(topic, num_partitions=1, replication_factor=-1, config=SETTINGS)
        try:
            admin.create_topics([made])[topic].result(ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        limit = time.monotonic() + ANSWER_SECONDS
        while not partitions(settings, topic) and time.monotonic() < limit:
            time.sleep(0.05)
        return
    resource = ConfigResource(ResourceType.TOPIC, topic)
    kept = admin.describe_configs([resource])[resource].result(ANSWER_SECONDS)
    if kept["cleanup.policy"].value != "compact":
        fault = f"the ledger topic '{topic}' has cleanup.policy {kept['cleanup.policy'].value}: it would lose its lines"
        raise SinkError(code="HR434", what=fault, fix=f"set cleanup.policy of '{topic}' to compact")


def _rows(places: Ends) -> list[list[Any]]:
    return [[topic, partition, offset] for (topic, partition), offset in sorted(places.items())]


def _places(rows: list[list[Any]]) -> dict[tuple[str, int], int]:
    return {(topic, partition): offset for topic, partition, offset in rows}


@contextmanager
def translate_errors(target: TopicTarget, fault: str) -> Iterator[None]:
    """Raise an error of Kafka's client as one of ours, in a sentence that begins with `fault`."""
    try:
        yield
    except Exception as error:
        explained = producer.explain(error, target.bootstrap_servers, fault)
        if explained is error:
            raise
        raise explained from None


def ledger(target: TopicTarget, context: SinkContext) -> TopicLedger | None:
    """The ledger of the context's generation; None: it has none."""
    with translate_errors(target, f"the ledger topic '{target.ledger_place}' cannot be read"):
        return TopicLedger.of(read(target.settings, target.ledger_place), context)


def lines(target: TopicTarget, context: SinkContext) -> Sequence[KeptLine] | None:
    """Read the ledger's lines of the batches that are in; None: it has no such generation."""
    with translate_errors(target, f"the ledger topic '{target.ledger_place}' cannot be read"):
        records = read(target.settings, target.ledger_place)
    is_applied(context, mark_in(records, context))
    own = TopicLedger.of(records, context)
    require_messages(target, context, own)
    return None if own is None else own.ledger.lines


def require_messages(target: TopicTarget, context: SinkContext, own: TopicLedger | None) -> None:
    """Raise CheckpointError where the topic ends before what the ledger has seen of it: it was made again, empty.

    `own` was read first. Where rows name their topics, each may have gone as it should.
    """
    topic, seen = target.topic, {} if own is None else {**own.begins, **own.ends}
    if topic is None or not any(name == topic for name, _ in seen):
        return
    now = ends(target.settings, partitions(target.settings, topic))
    for (name, partition), end in sorted(seen.items()):
        reached = now.get((name, partition), 0)
        if name == topic and reached < end:
            fault = f"topic '{topic}', partition {partition}, ends at offset {reached}, and ended at {end} when query "
            fault += f"'{context.query}' wrote: it was deleted and made again, or has lost its newest messages"
            fix = "put the topic back, or reset the query (headrace reset QUERY)"
            raise CheckpointError(code="HR410", what=fault, fix=fix)


@dataclass(frozen=True, kw_only=True)
class KafkaLedger(LinesLedger):
    """Which batches are in, by the ledger topic."""

    target: TopicTarget

    def lines(self, context: SinkContext, most: int = KEPT) -> Sequence[KeptLine]:
        own = ledger(self.target, context)
        return () if own is None else own.ledger.lines

    def read_plans(self, context: SinkContext, first: int) -> Mapping[int, PlannedBatch]:
        return plans(context, lines(self.target, context) or (), first)


def read_back(target: TopicTarget, spark: SparkSession, context: SinkContext) -> Snapshot:
    """The rows of the batches that are in: all in append mode, else the newest of each key, or of the last batch."""
    name = target.topic or ""
    own = ledger(target, context)
    if own is None or own.ledger.last is None:
        raise no_result(f"topic '{name}'", context, kind="topic")
    _await_markers(target, own.ends)
    begins = {place: own.begins.get(place, 0) for place in own.ends}  # A partition that came later: its first.
    with client(spark, target.bootstrap_servers, target.options, SinkError) as broker:
        earliest = broker.earliest(own.ends)
    for place, first in begins.items():
        if earliest.get(place, 0) > first:
            fault = f"messages of topic '{name}', partition {place[1]}, from offset {first} on are gone"
            fix = "let the topic keep what is to be verified (retention.ms, retention.bytes)"
            raise SinkError(code="HR402", what=fault, fix=fix)
    if not own.ends:
        rows = spark.createDataFrame([], own.ledger.schema)
        return Snapshot(rows=rows, batch=own.ledger.last, key=tuple(target.key))
    reader = spark.read.format("kafka").options(**target.options)
    messages = reader.options(
        **{
            "kafka.bootstrap.servers": target.bootstrap_servers,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            **span_options(begins, own.ends),
        }
    ).load()
    rows = as_rows(messages, own.life, own.ledger.last, own.ledger.schema)
    if context.mode == "complete":
        rows = rows.where(rows[BATCH] == own.ledger.last)
    rows = newest(rows, target.key) if context.mode == "update" else rows.drop(BATCH)
    return Snapshot(rows=rows, batch=own.ledger.last, key=tuple(target.key) if context.mode == "update" else ())


def _await_markers(target: TopicTarget, wanted: Ends) -> None:
    """Wait until messages up to `wanted` can be read: a commit reaches each partition by itself, a moment later.

    Another program's open transaction in the topic holds readers back as well.
    """
    limit = time.monotonic() + PATIENCE_SECONDS
    with translate_errors(target, f"topic '{target.topic}' cannot be read"):
        while True:
            stable = ends(target.settings, list(wanted), committed=True)
            if all(stable.get(place, 0) >= end for place, end in wanted.items()):
                return
            if time.monotonic() > limit:
                fault = f"topic '{target.topic}' cannot be read to the end of the last batch: a transaction stays open"
                fix = "stop the program that holds it, or wait until the broker aborts it; then verify again"
                raise SinkError(code="HR402", what=fault, fix=fix)
            time.sleep(0.1)
