"""The messages of a committed prefix, partition by partition, and what no batch has taken yet."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.connectors.kafka.producer import client_settings
from headrace.contract import Lag, OptionError, SourcePrefix
from headrace.units import instant

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer
    from pyspark.sql import DataFrame

    from headrace.connectors.kafka.options import KafkaOptions

Place: TypeAlias = tuple[str, int]
ANSWER_SECONDS = 3.0
ANSWER_LONGEST = 30.0
# So long a transaction may be open before it is named: the time after which a broker aborts one by default.
OPEN_SECONDS = 60.0
# Of so many partitions at most the oldest message is read; of more it is not known.
_PARTITIONS = 200
# What both clients name alike; the rest of a Java consumer's options is of no use here, or unknown to librdkafka.
_SHARED = ("kafka.security.", "kafka.sasl.", "kafka.ssl.", "kafka.client.dns.")
_OWN = {
    "group.id": "headrace-lag",
    # Else `close` waits for a coordinator of the group.
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    # One message of each partition is enough.
    "queued.min.messages": "1",
    "fetch.message.max.bytes": "65536",
    "fetch.wait.max.ms": "20",
    "socket.timeout.ms": str(int(1000 * ANSWER_SECONDS)),
}


@dataclass(frozen=True)
class PartitionSpan:
    """The offsets that a batch took of a partition: from `start` to before `end`."""

    batch: int
    start: int
    end: int


Ranges: TypeAlias = Mapping[Place, Sequence[PartitionSpan]]


def ranges(prefix: SourcePrefix) -> dict[Place, list[PartitionSpan]]:
    """Return what each batch took of each partition, in order; partitions of which nothing was taken are left out.

    The first batch begins where the source's log says; a partition that came later, at its first message.
    """
    before = beginning(prefix)
    ranges: dict[Place, list[PartitionSpan]] = {}
    for batch in prefix.batches:
        if batch.end is None:
            continue
        start = before if batch.start is None else _parse(batch.start)
        for place, end in _parse(batch.end).items():
            first = start.get(place, before.get(place, 0))
            if end > first:
                ranges.setdefault(place, []).append(PartitionSpan(batch.batch, first, end))
    return ranges


def mismatch(prefix: SourcePrefix, reads: Callable[[str, int], bool], topics: Sequence[str]) -> str:
    """Why `prefix` cannot be of the partitions for which `reads` says yes, and of all of `topics`; empty if it can."""
    ends = [batch.end for batch in prefix.batches if batch.end is not None]
    try:
        offsets = _parse(ends[-1]) if ends else {}
    except (ValueError, AttributeError, TypeError):
        return "its offsets are not those of topics"
    for topic, partition in sorted(offsets):
        if not reads(topic, partition):
            return f"it read partition {partition} of topic '{topic}', which the source does not name"
    unread = sorted(set(topics) - {topic for topic, _ in offsets}) if offsets else []
    return f"it did not read topic '{unread[0]}', which the source names" if unread else ""


def first_gone(wanted: Ranges, earliest: Mapping[Place, int]) -> str | None:
    """The first partition whose messages are not all there any more, in words; None: all are."""
    for (topic, partition), spans in wanted.items():
        first = earliest.get((topic, partition))
        if first is None or first > spans[0].start:
            gone = "the topic is gone" if first is None else f"the first one there is {first}"
            return f"topic '{topic}', partition {partition}, were read from offset {spans[0].start} on, and {gone}"
    return None


def waiting(end: str, latest: str) -> int:
    """Count the offsets between two positions; those of transactions' own marks among them."""
    taken = _parse(end)
    return sum(max(0, offset - taken.get(place, 0)) for place, offset in _parse(latest).items())


def beginning(prefix: SourcePrefix) -> dict[Place, int]:
    """Return the offsets at which the first batch began, as far as the source's log has them."""
    return _parse(prefix.log[0][0]) if prefix.log.get(0) else {}


def end_position(prefix: SourcePrefix) -> dict[Place, int] | None:
    """Return the offsets up to which `prefix` was read; None where its source has planned nothing yet."""
    end = next((batch.end for batch in reversed(prefix.batches) if batch.end is not None), None)
    return _parse(end) if end is not None else beginning(prefix) if prefix.log.get(0) else None


def by_topic(offsets: Mapping[Place, int]) -> dict[str, dict[int, int]]:
    """Offsets as the option `starting_offsets` takes them."""
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[partition] = offset
    return topics


def span_options(first: Mapping[Place, int], last: Mapping[Place, int]) -> dict[str, str]:
    """Spark's options for the messages from `first` to before `last`, which name the same partitions."""
    named = {topic: list(offsets) for topic, offsets in by_topic(last).items()}
    return {
        "assign": json.dumps(named),
        "startingOffsets": json.dumps(by_topic(first)),
        "endingOffsets": json.dumps(by_topic(last)),
    }


def with_batch(frame: DataFrame, wanted: Ranges, column: str) -> DataFrame:
    """`frame` with one more column, last: the batch that each message came in."""
    from pyspark.sql.types import LongType, StructField, StructType

    ends = {place: ([span.end for span in spans], [span.batch for span in spans]) for place, spans in wanted.items()}

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            topics, numbers = batch.column("topic").to_pylist(), batch.column("partition").to_pylist()
            offsets = batch.column("offset").to_numpy()
            taken_by = np.zeros(batch.num_rows, dtype="int64")
            for place in set(zip(topics, numbers, strict=True)):
                mask = np.fromiter(
                    ((topic, at) == place for topic, at in zip(topics, numbers, strict=True)), dtype=bool
                )
                limits, taken = ends[place]
                taken_by[mask] = np.array(taken)[np.searchsorted(np.array(limits), offsets[mask], side="right")]
            yield pa.record_batch([*batch.columns, pa.array(taken_by)], names=[*batch.schema.names, column])

    schema = StructType([*frame.schema.fields, StructField(column, LongType())])
    return frame.mapInArrow(number, schema)


def _parse(text: str) -> dict[Place, int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, rest in json.loads(text).items()
        for partition, offset in rest.items()
    }


def measure_lag(
    source: KafkaOptions,
    position: Mapping[Place, int],
    recreated: Callable[[Mapping[str, str]], OptionError | None] | None,
) -> Lag | None:
    """Count what lies after `position` in the partitions that `source` reads; None: the broker does not answer.

    A partition that `position` lacks is read from its first message. recreated: says of the ids that the topics have
    now whether one was created again, so that its offsets are no lag; None: those that they had are not known.
    """
    if find_spec("confluent_kafka") is None:
        return None
    from confluent_kafka import Consumer, KafkaException

    shared = {name: value for name, value in source.options.items() if name.startswith(_SHARED)}
    settings = client_settings(source.bootstrap_servers, shared, {})
    until = time.monotonic() + ANSWER_SECONDS
    try:
        topics = {topic for topic, _ in position}
        if recreated is not None and (problem := recreated(_topic_ids(settings, topics, until))):
            return Lag(count=0, unit="messages", problem=problem.what)
        consumer = Consumer({**_OWN, **settings, "isolation.level": source.isolation_level})
        try:
            starts, ends = _behind(consumer, position, source.reads_topic, until)
            oldest = _oldest_ms(consumer, starts, until) if starts else None
        finally:
            consumer.close()
        count = sum(ends[place] - start for place, start in starts.items())
        held = _find_open_transaction(settings, ends, until) if source.isolation_level == "read_committed" else ""
    except (KafkaException, TimeoutError, FutureTimeout):
        return None
    return Lag(count=count, unit="messages", oldest_ms=oldest, problem=held)


def _topic_ids(settings: Mapping[str, Any], topics: Collection[str], until: float) -> dict[str, str]:
    """The id of each topic that is there. Raises KafkaException, and TimeoutError of futures."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    ids = {}
    admin = AdminClient(dict(settings))
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_remaining(until)) if topics else {}
    for name, answer in answers.items():
        try:
            # As Kafka's own tools write it.
            ids[name] = str(answer.result(_remaining(until)).topic_id).translate(str.maketrans("+/", "-_"))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return ids


def ends(
    settings: Mapping[str, Any], places: Iterable[Place], *, committed: bool = False, seconds: float = ANSWER_LONGEST
) -> dict[Any, int]:
    """Return the end of each partition; `committed`: for readers of committed messages alone. Raises KafkaException."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient(dict(settings))
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = admin.list_offsets(
        {TopicPartition(topic, partition): latest for topic, partition in places},
        isolation_level=level,
        request_timeout=seconds,
    )
    return {(at.topic, at.partition): answer.result(seconds).offset for at, answer in asked.items()}


def _find_open_transaction(settings: Mapping[str, Any], stable: Mapping[Place, int], until: float) -> str:
    """Find an open transaction that holds back messages for long, as the end of a sentence; empty: none.

    stable: where each partition ends for those who read committed messages alone, which is where it begins.
    """
    from confluent_kafka import Consumer

    whole = ends(settings, stable, seconds=_remaining(until)) if stable else {}
    held = {place: end for place, end in stable.items() if whole[place] > end}
    if not held:
        return ""
    consumer = Consumer({**_OWN, **settings, "isolation.level": "read_uncommitted"})
    try:
        for place, first in held.items():
            begun = _oldest_ms(consumer, {place: first}, until)
            if begun is not None and time.time() - begun / 1000 > OPEN_SECONDS:
                where = f"topic '{place[0]}', partition {place[1]}"
                return (
                    f"a transaction that is open since {instant(begun / 1000):%Y-%m-%d %H:%M:%S} UTC holds back "
                    f"{whole[place] - first:,} messages of {where}"
                )
    finally:
        consumer.close()
    return ""


def _behind(
    consumer: Consumer, position: Mapping[Place, int], reads: Callable[[str, int], bool], until: float
) -> tuple[dict[Place, int], dict[Place, int]]:
    """Return where to continue in each partition that has more, and where all of them end."""
    from confluent_kafka import TopicPartition

    topics = consumer.list_topics(timeout=_remaining(until)).topics
    starts, last = {}, {}
    for place in ((name, part) for name, topic in topics.items() for part in topic.partitions if reads(name, part)):
        bounds = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_remaining(until), cached=False)
        if bounds is None:
            raise TimeoutError
        start, last[place] = max(bounds[0], position.get(place, bounds[0])), bounds[1]
        if start < bounds[1]:
            starts[place] = start
    return starts, last


def _oldest_ms(consumer: Consumer, starts: Mapping[Place, int], until: float) -> int | None:
    """The least timestamp of the messages at these offsets; None: not known of all of them within the time."""
    from confluent_kafka import KafkaError, TopicPartition

    if len(starts) > _PARTITIONS:
        return None
    asked = {place: TopicPartition(*place, offset) for place, offset in starts.items()}
    times: list[int] = []
    consumer.assign(list(asked.values()))
    while asked:
        message: Any = consumer.poll(_remaining(until))
        if message is None:
            return None
        error, place = message.error(), (message.topic(), message.partition())
        if place not in asked or (error is not None and error.code() != KafkaError._PARTITION_EOF):
            continue
        if error is None:  # At the end of a partition there were marks of transactions alone.
            times.append(message.timestamp()[1])
        consumer.pause([asked.pop(place)])
    return min((ms for ms in times if ms > 0), default=None)


def _remaining(until: float) -> float:
    return max(0.05, until - time.monotonic())
