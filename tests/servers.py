"""Fixtures for the tests of tier `services`: real servers that tests share, and a fresh database for each test."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from services import KINDS, HdfsServer, KafkaServer, MariaDbServer, PostgresServer, S3Server, Server, process
from services.process import ServerFault, new_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count()
PATIENCE = 20.0
# What a server's log says of a fault, without what it says of each client that a test has killed.
LOG_LINES = 15
FAULT = re.compile(r"(?i)error|fatal|panic|warn|exception")
NOISE = re.compile(r"Aborted connection|closed normally|Access denied| INFO ")


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
        consumer = Consumer(
            {
                "bootstrap.servers": self.url,
                "group.id": "test",
                "enable.partition.eof": True,
                # Else `close` waits for a coordinator of the group.
                "enable.auto.commit": False,
            }
        )
        partitions = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        by_partition: dict[int, list[tuple[str | None, str | None]]] = {number: [] for number in partitions}
        open_ = set(partitions)
        while open_:
            message = consumer.poll(10)
            assert message is not None, "the broker went silent"
            number = message.partition()
            assert number is not None
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_.discard(number)
                continue
            by_partition[number].append((_text(message.key()), _text(message.value())))
        consumer.close()
        return [message for number in partitions for message in by_partition[number]]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def unavailable(sentence: str) -> NoReturn:
    """Skip a test for what this machine has not; in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)


def home_of(name: str) -> Path:
    """Where a server of tests lives: in memory, as the tests' own files (tests/conftest.py), where there is some.

    On a disk, an empty database takes half a second to make and to drop. A kill leaves the memory as it was.
    """
    memory = str(process.MEMORY)
    return new_home(name, memory if os.environ.get("PYTEST_DEBUG_TEMPROOT") == memory else None)


def running(name: str) -> Iterator[Server]:
    """A server of one test's own; a machine that has none skips the test, except in CI, where it fails."""
    kind = KINDS[name]
    if sentence := kind.missing():
        unavailable(sentence)
    server = kind(home_of(name))
    try:
        server.create()
        yield server
    finally:
        server.remove()


def answers(server: Server) -> bool:
    """Whether the server answers; one that lives may take its time on a machine with other work."""
    ends = time.monotonic() + PATIENCE
    while not server.answers():
        if process.running(server.home) is None or time.monotonic() > ends:
            return False
        time.sleep(0.1)
    return True


class Servers:
    """A server of each kind, started when a test first wants it and looked at before each test that does.

    One that has died in a test is started again, and made again where that fails: the next test finds one that works.
    """

    def __init__(self) -> None:
        self.running: dict[str, Server] = {}
        self.failed: dict[str, list[ServerFault]] = {}

    def get(self, name: str) -> Any:
        """The server; a machine that has none skips the test, except in CI, where it fails."""
        kind = KINDS[name]
        if sentence := kind.missing():
            unavailable(sentence)
        server = self.running.get(name)
        if server is None or not (answers(server) or self._starts_again(server)):
            server = self.running[name] = self._make(name)
        return server

    def _starts_again(self, server: Server) -> bool:
        with contextlib.suppress(ServerFault, OSError):
            server.kill()
            server.start()
            return True
        server.remove()
        return False

    def _make(self, name: str) -> Server:
        """A new server; after two failures the tests fail at once with the last one."""
        failed = self.failed.setdefault(name, [])
        if len(failed) >= 2:
            raise failed[-1]
        server = KINDS[name](home_of(name))
        try:
            server.create()
        except ServerFault as error:
            failed.append(error)
            server.remove()
            raise
        return server

    def remove(self) -> None:
        for server in self.running.values():
            server.remove()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure the last faults in the logs of its servers: a lost connection has its cause there."""
    report = yield
    if report.failed:
        given = getattr(item, "funcargs", {}).values()
        shared = [server for value in given if isinstance(value, Servers) for server in value.running.values()]
        own = [value for value in given if isinstance(value, Server)]
        for server in dict.fromkeys([*shared, *own]):
            with contextlib.suppress(OSError):
                faults = [line for line in server.log.splitlines() if FAULT.search(line) and not NOISE.search(line)]
                tail = "\n".join(faults[-LOG_LINES:])
                report.sections.append((f"log of {server.home.name}", tail))
    return report


@pytest.fixture
def postgres_server(servers: Servers) -> PostgresServer:
    return cast(PostgresServer, servers.get("postgres"))


@pytest.fixture
def mariadb_server(servers: Servers) -> MariaDbServer:
    return cast(MariaDbServer, servers.get("mariadb"))


@pytest.fixture
def kafka_server(servers: Servers) -> KafkaServer:
    return cast(KafkaServer, servers.get("kafka"))


@pytest.fixture
def hdfs_server(servers: Servers) -> HdfsServer:
    return cast(HdfsServer, servers.get("hdfs"))


@pytest.fixture
def s3_server(servers: Servers) -> S3Server:
    return cast(S3Server, servers.get("s3"))


def fresh(server: PostgresServer | MariaDbServer) -> Iterator[str]:
    """The URL of an empty database, dropped afterwards unless the server has died."""
    name = f"test_{next(_numbers)}"
    yield server.create_database(name)
    if answers(server):
        server.drop_database(name)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    yield from fresh(postgres_server)


@pytest.fixture
def mariadb_url(mariadb_server: MariaDbServer) -> Iterator[str]:
    yield from fresh(mariadb_server)


@pytest.fixture
def kafka(kafka_server: KafkaServer, spark: SparkSession) -> Topics:
    """The broker, and topics of this test's own; the session has Spark's connector."""
    return Topics(kafka_server)
