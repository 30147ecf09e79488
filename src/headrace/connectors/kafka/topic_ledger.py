"""Which batches are in a topic, kept in a compacted topic beside it and written in the rows' own transaction."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from headrace.connectors.exactly_once import KeptLine, TextLedger
from headrace.connectors.exactly_once.kept import KEPT
from headrace.connectors.kafka.producer import ANSWER_SECONDS
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError

# The offset behind the last message, by topic and partition.
Ends: TypeAlias = Mapping[tuple[str, int], int]
# Small segments: what is no longer needed is compacted away within minutes, and a start reads a few megabytes.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
# A broker takes messages of a megabyte; a batch whose plan is longer cannot be planned again from the ledger.
LONGEST = 600_000
# Longer than a transaction of another query may stay open over the same ledger topic.
PATIENCE_SECONDS = 90.0


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
        """The ledger that `records` tell, by their keys; None: they hold none of the context's generation."""
        head = records.get(f"{key_of(context)}/head")
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
    def begun(
        cls, found: TopicLedger | None, context: SinkContext, name: str, result: str, begins: Ends
    ) -> TopicLedger:
        """The ledger with the epoch of a new driver; raises CheckpointError where its batches are not the checkpoint's.

        The result may have other columns than before: each message tells its own.
        """
        if found is None:
            ledger = TextLedger.begun(None, context, name, result)
            return cls(ledger=ledger, life=uuid.uuid4().hex, begins=begins)
        ledger = TextLedger.begun(found.ledger.dumps(), context, name, found.ledger.result)
        return replace(found, ledger=replace(ledger, result=result))

    def with_batch(self, line: KeptLine, ends: Ends) -> TopicLedger:
        """The ledger once the batch of `line` is in, whose messages end at `ends`."""
        return replace(self, ledger=self.ledger.with_batch(line), ends={**self.ends, **ends})

    def head(self, context: SinkContext) -> tuple[str, bytes]:
        """Key and value of the message that says whose the ledger is."""
        names = ("query", "generation", "application", "epoch", "result")
        facts = {
            "ledger": {name: getattr(self.ledger, name) for name in names},
            "life": self.life,
            "begins": _rows(self.begins),
        }
        return f"{key_of(context)}/head", json.dumps(facts).encode()

    def lines(self, context: SinkContext) -> dict[str, bytes]:
        """Key and value of each line's message."""
        return dict(self.line(context, line) for line in self.ledger.lines)

    def line(self, context: SinkContext, line: KeptLine) -> tuple[str, bytes]:
        """Key and value of the message of one line, which replaces that of an older batch."""
        if len(line.planned or "") > LONGEST:
            line = replace(line, planned=None)
        value = json.dumps({"line": line.as_dict(), "ends": _rows(self.ends)}).encode()
        return f"{key_of(context)}/{line.batch % KEPT}", value


def key_of(context: SinkContext) -> str:
    """What the keys of a generation's records begin with."""
    return f"{context.application}/{context.query}/{context.generation}"


def keys_of(context: SinkContext) -> list[str]:
    """All keys of a generation's records."""
    return [f"{key_of(context)}/{part}" for part in ("head", *range(KEPT))]


def read(settings: Mapping[str, Any], topic: str) -> dict[str, bytes]:
    """The newest committed value of each key. Raises KafkaException, and SinkError where a transaction stays open.

    Messages that were committed behind an open transaction of another query are shown only when that has ended: the
    topic is read up to its very end, not to where it can be read by now.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    end = ends(settings, [(topic, 0)]).get((topic, 0), 0)
    more = {"group.id": "headrace", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**settings, **more, "enable.partition.eof": True, "fetch.wait.max.ms": 50})
    found: dict[str, bytes] = {}
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        limit = time.monotonic() + PATIENCE_SECONDS
        while end:
            message = consumer.poll(1.0)
            if message is not None and (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if (message.offset() or 0) >= end:
                    break
            elif message is not None:
                key, value = (message.key() or b"").decode(), message.value()
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value
            if time.monotonic() > limit:
                what = f"the ledger topic '{topic}' cannot be read to its end: a transaction there stays open"
                fix = "stop the program that holds it, or wait until the broker aborts it; then start again"
                raise SinkError(Finding(code="HR434", what=what, fix=fix))
    finally:
        consumer.close()
    return found


def ends(settings: Mapping[str, Any], places: list[tuple[str, int]], *, committed: bool = False) -> dict[Any, int]:
    """Where each partition ends, `committed`: for those who read committed messages alone. Raises KafkaException."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient(dict(settings))
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = admin.list_offsets(
        {TopicPartition(topic, partition): latest for topic, partition in places},
        isolation_level=level,
        request_timeout=ANSWER_SECONDS,
    )
    return {(at.topic, at.partition): answer.result(ANSWER_SECONDS).offset for at, answer in asked.items()}


def partitions(settings: Mapping[str, Any], topic: str) -> list[tuple[str, int]]:
    """The partitions of a topic; none if it is not there. Raises KafkaException."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient(dict(settings)).list_topics(topic, ANSWER_SECONDS).topics[topic]
    return [] if found.error is not None else [(topic, number) for number in sorted(found.partitions)]


def require_topic(settings: Mapping[str, Any], topic: str) -> None:
    """Make the ledger topic where there is none. Raises KafkaException, and SinkError where it would lose lines."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

    admin = AdminClient(dict(settings))
    if not partitions(settings, topic):
        try:
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=-1, config=SETTINGS)])[
                topic
            ].result(ANSWER_SECONDS)
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
        what = f"the ledger topic '{topic}' has cleanup.policy {kept['cleanup.policy'].value}: it would lose its lines"
        raise SinkError(Finding(code="HR434", what=what, fix=f"set cleanup.policy of '{topic}' to compact"))


def _rows(places: Ends) -> list[list[Any]]:
    return [[topic, partition, offset] for (topic, partition), offset in sorted(places.items())]


def _places(rows: list[list[Any]]) -> dict[tuple[str, int], int]:
    return {(topic, partition): offset for topic, partition, offset in rows}
