"""The Kafka sink exactly once against at least once: the rate of large batches, and how long a small one takes."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Literal

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.figures import Figure, Side
from benchmarks.model_kafka import PARTITIONS, Broker, broker
from benchmarks.processes import HEADRACE, lines_until

TITLE = "the Kafka sink: exactly once against at least once"
RUNS = 3
MESSAGES, EACH = 600_000, 200_000
FEW_MESSAGES, FEW_EACH = 20_000, 10_000
# Small batches after the large ones, of which the first warms up.
SMALL, SMALL_BATCHES = 1_000, 12

Delivery = Literal["exactly-once", "at-least-once"]

_PROJECT = """name: through
sources:
  words:
    kafka:
      bootstrap_servers: "{url}"
      subscribe: {source}
      value: text
      starting_offsets: earliest
      max_offsets_per_trigger: {each}
queries:
  louder:
    select: SELECT upper(value) AS value FROM words
    mode: append
    sink: {{kafka: {{bootstrap_servers: "{url}", topic: {sink}, value: raw, delivery_guarantee: {delivery}}}}}
targets:
  dev: {{master: "local[2]"}}
"""


def measure(*, runs: int, quick: bool) -> list[Figure]:
    messages, size = (FEW_MESSAGES, FEW_EACH) if quick else (MESSAGES, EACH)
    large: dict[Delivery, list[float]] = {"exactly-once": [], "at-least-once": []}
    small: dict[Delivery, list[float]] = {"exactly-once": [], "at-least-once": []}
    with broker() as kafka:
        for turn in range(runs):
            # What runs second finds a warmer machine, or a busier one.
            for delivery in sorted(large, reverse=turn % 2 == 1):
                took = _run(kafka, delivery, messages, size)
                large[delivery].append(took[0])
                small[delivery].append(took[1])
    return [
        Figure(
            name=name,
            ours=Side.of(times["exactly-once"]),
            theirs=Side.of(times["at-least-once"]),
            against="the sink at least once, Spark's own",
            unit="ms",
            note=f"triggerExecution, a median of each run; one broker on the same two cores, {PARTITIONS} partitions",
        )
        for name, times in (
            (f"a batch of {size:,} messages into Kafka, exactly once", large),
            (f"a batch of {SMALL:,} messages into Kafka, exactly once", small),
        )
    ]


def _run(kafka: Broker, delivery: Delivery, messages: int, size: int) -> tuple[float, float]:
    """The median of the large batches but the first, and of the small ones that come after them, in milliseconds."""
    source, sink = kafka.topic(), kafka.topic()
    kafka.fill(source, messages)
    producer = Producer({"bootstrap.servers": kafka.url, "linger.ms": 5})
    large: list[float] = []
    small: list[float] = []
    read = 0

    def enough(line: str) -> bool:
        nonlocal read
        event = json.loads(line)
        if event["event"] != "batch" or not event["rows"]:
            return False
        read += int(event["rows"])
        (large if read <= messages else small).append(float(event["duration_ms"]))
        if (done := read >= messages + SMALL * SMALL_BATCHES) or read < messages or (read - messages) % SMALL:
            return done
        for number in range(SMALL):
            producer.produce(source, f"{number:012d} of some phone", partition=number % PARTITIONS)
        producer.flush()
        return False

    with tempfile.TemporaryDirectory() as scratch:
        text = _PROJECT.format(url=kafka.url, source=source, sink=sink, each=size, delivery=delivery)
        (Path(scratch) / "headrace.yml").write_text(text, encoding="utf-8")
        lines_until([*HEADRACE, "run", "--json"], enough, cwd=Path(scratch))
    if (count := _count_committed(kafka, sink)) != read:
        raise RuntimeError(f"{count} messages came out of {read}, {delivery}")
    for topic in (source, sink):
        kafka.server.delete_topic(topic)
    return statistics.median(large[1:]), statistics.median(small[1:])


def _count_committed(kafka: Broker, topic: str) -> int:
    """How many messages a reader of committed messages finds."""
    settings = {"bootstrap.servers": kafka.url, "group.id": "count", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    count = ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 10):
            ended += message.error() is not None
            count += message.error() is None
    consumer.close()
    return count
