"""Fixtures for the tests of tier `services`: real servers, started once, and a fresh database for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from services import KINDS, KafkaServer, MariaDbServer, PostgresServer, Server
from services.process import new_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count()


@dataclass
class Topics:
    """A broker whose topics a test makes, fills and reads."""

    server: KafkaServer

    @property
    def url(self) -> str:
        return self.server.url()

    def make(self, partitions: int = 1, **config: str) -> str:
        """A new empty topic."""
        return self.server.create_topic(f"topic-{next(_numbers)}", partitions=partitions, **config)

    def send(self, topic: str, *values: str | bytes | None, key: str | None = None, **more: Any) -> None:
        """Send one message for each value, and wait until the broker has them."""
        producer = Producer({"bootstrap.servers": self.url, "acks": "all"})
        for value in values:
            producer.produce(topic, value, key, **more)
        assert producer.flush(20) == 0

    def read(self, topic: str) -> list[tuple[str | None, str | None]]:
        """Key and value of every message that the topic holds, in order of its partitions."""
        consumer = Consumer({"bootstrap.servers": self.url, "group.id": "test", "enable.partition.eof": True})
        partitions = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: dict[int, list[tuple[str | None, str | None]]] = {number: [] for number in partitions}
        open_ = set(partitions)
        while open_:
            message = consumer.poll(10)
            assert message is not None, "the broker went silent"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                open_.discard(message.partition())
                continue
            found[message.partition()].append((_text(message.key()), _text(message.value())))
        consumer.close()
        return [each for number in partitions for each in found[number]]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def unavailable(sentence: str) -> NoReturn:
    """Skip a test for what this machine has not; in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)


def running(name: str) -> Iterator[Server]:
    """A server of its own; a machine that has none skips the test, except in CI, where it fails."""
    kind = KINDS[name]
    if sentence := kind.missing():
        unavailable(sentence)
    server = kind(new_home(name))
    try:
        server.install()
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    yield from running("postgres")


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    yield from running("mariadb")


def fresh(server: PostgresServer | MariaDbServer) -> Iterator[str]:
    """The URL of an empty database, dropped afterwards."""
    name = f"test_{next(_numbers)}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    yield from fresh(postgres_server)


@pytest.fixture
def mariadb_url(mariadb_server: MariaDbServer) -> Iterator[str]:
    yield from fresh(mariadb_server)


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[Server]:
    yield from running("kafka")


@pytest.fixture
def kafka(kafka_server: KafkaServer, spark: SparkSession) -> Topics:
    """The broker, and topics of this test's own; the session has Spark's connector."""
    return Topics(kafka_server)
