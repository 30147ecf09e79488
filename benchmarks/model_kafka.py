"""A broker to measure with: a topic full of messages, and how long a message takes through a running query."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.processes import environment
from services import KafkaServer
from services.process import new_home

PARTITIONS = 2
WORDS = ["impression", "click", "view", "open", "close"]
PATIENCE_SECONDS = 120.0
_numbers = count()


@dataclass
class Broker:
    """Topics of two partitions on a broker of this benchmark's own."""

    server: KafkaServer

    @property
    def url(self) -> str:
        return self.server.url()

    def topic(self, partitions: int = PARTITIONS) -> str:
        return self.server.create_topic(f"topic-{next(_numbers)}", partitions=partitions)

    def fill(self, topic: str, messages: int) -> None:
        """Messages of about 100 bytes, of which every tenth is to be skipped; half of them in each partition."""
        producer = Producer({"bootstrap.servers": self.url, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
        for number in range(messages):
            word = "skip" if number % 10 == 0 else WORDS[number % len(WORDS)]
            text = (
                f"{word} {number:012d} of some phone, somewhere, at a time that no one will remember; so it continues"
            )
            while True:
                try:
                    producer.produce(topic, text, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()

    def messages(self, topic: str) -> int:
        """How many messages a topic holds; transactions' marks would be counted, and there are none."""
        consumer = Consumer({"bootstrap.servers": self.url, "group.id": "count"})
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        spans = [consumer.get_watermark_offsets(TopicPartition(topic, number), 10) for number in partitions]
        consumer.close()
        return sum(high - low for low, high in spans)


@contextmanager
def broker() -> Iterator[Broker]:
    if sentence := KafkaServer.missing():
        raise RuntimeError(sentence)
    server = KafkaServer(new_home("kafka"))
    try:
        server.create()
        yield Broker(server)
    finally:
        server.remove()


def median_latency(
    broker: Broker, source: str, sink: str, command: Sequence[str | Path], *, cwd: Path, rate: int, seconds: float
) -> float:
    """Seconds from the send of a message to its receipt from `sink`, while `command` runs; the median.

    A tenth of `rate` messages are sent ten times a second for `seconds`, after a warm-up of half that time. Raises
    RuntimeError if one does not come.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            list(map(str, command)), cwd=cwd, env=environment(), stdout=subprocess.DEVNULL, stderr=log, text=True
        )
        try:
            latencies = _latencies(broker, source, sink, process, rate=rate, seconds=seconds)
        except RuntimeError as error:
            log.seek(0)
            raise RuntimeError(f"{error}:\n{log.read()[-4000:]}") from error
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)
    return statistics.median(latencies)


def _latencies(
    broker: Broker, source: str, sink: str, process: subprocess.Popen[str], *, rate: int, seconds: float
) -> list[float]:
    producer = Producer({"bootstrap.servers": broker.url, "linger.ms": 0, "acks": 1})
    consumer = Consumer({"bootstrap.servers": broker.url, "group.id": "latency", "fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(sink, number, 0) for number in range(PARTITIONS)])
    _await_first(producer, source, consumer, process)
    pace, warm = 1 / rate, int(rate * seconds / 2)
    total = warm + int(rate * seconds)
    begun, sent, came, latencies = time.perf_counter(), 0, 0, []
    while came < total:
        now = time.perf_counter()
        if now - begun > seconds * 1.5 + PATIENCE_SECONDS:
            raise RuntimeError(f"{came} of {total} messages came")
        while sent < total and begun + sent * pace <= now:
            producer.produce(source, f"{sent} {time.perf_counter()}", partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0)
        message = consumer.poll(0.001)
        value = None if message is None or message.error() else message.value()
        if value is None or value.startswith(b"FIRST"):
            continue
        number, at = value.split()
        came += 1
        if int(number) >= warm:
            latencies.append(time.perf_counter() - float(at))
    producer.flush()
    consumer.close()
    return latencies


def _await_first(producer: Producer, source: str, consumer: Consumer, process: subprocess.Popen[str]) -> None:
    """Send a message to each partition, and wait until both have come: the query runs."""
    for number in range(PARTITIONS):
        producer.produce(source, "first", partition=number)
    producer.flush()
    ends, missing = time.monotonic() + PATIENCE_SECONDS, PARTITIONS
    while missing:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            missing -= 1
        if process.poll() is not None:
            raise RuntimeError(f"the query ended with {process.returncode}")
        if time.monotonic() > ends:
            raise RuntimeError("nothing came through the query")
