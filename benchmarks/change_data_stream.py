"""A steady stream of changes: from the commit in a PostgreSQL database, through Debezium, to the commit of its copy."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from benchmarks.change_data_topic import PROJECT, TABLE, create_table
from benchmarks.figures import Figure, Side
from benchmarks.model_kafka import PATIENCE_SECONDS, broker
from benchmarks.processes import HEADRACE, environment
from services import ConnectServer, KafkaServer, PostgresServer
from services import connectors as stand_ins
from services.process import new_home

TITLE = "change data: a steady stream of 2,000 changes a second, from the source's commit to the copy's"
RUNS = 3
_PER_SECOND, _TRANSACTIONS = 2_000, 100
_KEYS = 10_000
_SECONDS, _WARM_SECONDS = 60.0, 120.0
_LOOK_SECONDS = 0.002
# One row is changed by each transaction, which writes its number there.
_MARK = 0
_CHANGE = f"UPDATE {TABLE} SET points = %s, city = %s WHERE id = %s OR id = ANY(%s)"


@dataclass
class Clock:
    """When each transaction was committed, came into the topic, and was seen in the copy."""

    committed: dict[int, float] = field(default_factory=dict)
    in_topic: dict[int, float] = field(default_factory=dict)
    copied: dict[int, float] = field(default_factory=dict)
    ends: threading.Event = field(default_factory=threading.Event)

    def waits(self, arrived: dict[int, float], warm: int) -> list[float]:
        """In milliseconds, of the transactions from `warm` on."""
        return [(arrived[number] - at) * 1000 for number, at in self.committed.items() if number >= warm]


def measure(*, runs: int, quick: bool) -> list[Figure]:
    if sentence := ConnectServer.missing():
        raise RuntimeError(sentence)
    stand_ins.install()
    seconds, warm = (4.0, 4.0) if quick else (_SECONDS, _WARM_SECONDS)
    ours: dict[str, list[float]] = {"p50": [], "p99": []}
    topic: dict[str, list[float]] = {"p50": [], "p99": []}
    for _ in range(runs):
        clock = _run(seconds + warm)
        first = int(warm * _TRANSACTIONS)
        for name, share in (("p50", 50), ("p99", 99)):
            for side, arrived in ((ours, clock.copied), (topic, clock.in_topic)):
                waits = clock.waits(arrived, first)
                side[name].append(statistics.quantiles(waits, n=100, method="inclusive")[share - 1])
    return [
        Figure(
            name=f"from the source's commit to the copy's, {_PER_SECOND:,} changes a second, {name}",
            ours=Side.of(ours[name]),
            theirs=Side.of(topic[name]),
            against="from the source's commit to the topic, which Debezium takes",
            unit="ms",
            target=400.0 if name == "p50" and not quick else None,
            target_of="ours",
            note=f"{_TRANSACTIONS} transactions a second of {_PER_SECOND // _TRANSACTIONS} updates, of {_KEYS:,} rows; "
            f"{seconds:g} seconds after {warm:g} to warm up; source, worker, broker, copy and driver on this machine",
        )
        for name in ours
    ]


def _run(seconds: float) -> Clock:
    with ExitStack() as stack:
        kafka = stack.enter_context(broker())
        connect = ConnectServer(new_home("connect"), kafka.server)
        database = PostgresServer(new_home("postgres"))
        for server in (database, connect):
            stack.callback(server.remove)
            server.create()
        source, copy = database.create_database("shop"), database.create_database("copies")
        with closing(psycopg.connect(source, autocommit=True)) as connection:
            connection.execute(create_table())
            connection.execute(f"ALTER TABLE {TABLE} REPLICA IDENTITY FULL")
            connection.execute(
                f"INSERT INTO {TABLE} SELECT id, 'name ' || id, '', -1 FROM generate_series(0, %s) AS id", [_KEYS - 1]
            )
        topic = _follow(connect, source)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        project = PROJECT.format(broker=kafka.url, topic=topic, url=copy, trigger="default")
        (place / "headrace.yml").write_text(project, encoding="utf-8")
        log = stack.enter_context((place / "log").open("w+"))
        driver = subprocess.Popen([*HEADRACE, "run"], cwd=place, env=environment(), stdout=log, stderr=log)
        stack.callback(driver.wait, PATIENCE_SECONDS)
        stack.callback(driver.terminate)
        try:
            return _clock_changes(source, copy, kafka.server, topic, driver, seconds)
        except RuntimeError as error:
            log.seek(0)
            raise RuntimeError(f"{error}:\n{log.read()[-4000:]}") from error


def _follow(connect: ConnectServer, source: str) -> str:
    """Let Debezium follow the table; returns its topic."""
    parts = urlsplit(source)
    converters = {
        f"{part}.converter{setting}": value
        for part in ("key", "value")
        for setting, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "false"))
    }
    settings = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.prefix": "shop",
        "database.hostname": parts.hostname,
        "database.port": parts.port,
        "database.user": parts.username,
        "database.password": parts.password,
        "database.dbname": parts.path[1:],
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": f"public.{TABLE}",
        "skipped.operations": "none",
        "topic.creation.default.replication.factor": 1,
        "topic.creation.default.partitions": 1,
        "poll.interval.ms": 10,
    }
    connect.add("shop", {**settings, **converters})
    topic, ends = f"shop.public.{TABLE}", time.monotonic() + PATIENCE_SECONDS
    # Connect makes the topic for the first message.
    while topic not in connect.kafka.admin().list_topics(timeout=PATIENCE_SECONDS).topics:
        if time.monotonic() > ends:
            raise RuntimeError(f"topic {topic} does not come")
        time.sleep(0.2)
    return topic


def _clock_changes(
    source: str, copy: str, kafka: KafkaServer, topic: str, driver: subprocess.Popen[bytes], seconds: float
) -> Clock:
    """Change the source for so many seconds, and note when each transaction arrives."""
    clock = Clock()
    watchers = [
        threading.Thread(target=_watch_copy, args=(copy, clock), daemon=True),
        threading.Thread(target=_watch_topic, args=(kafka, topic, clock), daemon=True),
    ]
    try:
        _await_copy(copy, driver)
        for watcher in watchers:
            watcher.start()
        _change(source, clock, seconds)
        ends, last = time.monotonic() + PATIENCE_SECONDS, max(clock.committed)
        while last not in clock.copied or last not in clock.in_topic:
            if driver.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"transaction {last} did not arrive")
            time.sleep(0.1)
    finally:
        clock.ends.set()
        for watcher in watchers:
            if watcher.ident is not None:
                watcher.join(PATIENCE_SECONDS)
    return clock


def _await_copy(copy: str, driver: subprocess.Popen[bytes]) -> None:
    """Wait until the copy has all rows."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends and driver.poll() is None:
        with closing(psycopg.connect(copy, autocommit=True)) as connection:
            there = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [TABLE]).fetchone()
            if there == (True,):
                [(rows,)] = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()
                if rows == _KEYS:
                    return
        time.sleep(0.2)
    raise RuntimeError("the copy does not have the rows of the source")


def _change(source: str, clock: Clock, seconds: float) -> None:
    """Commit transactions at an even pace; one that comes late does not move the next."""
    many, begun = _PER_SECOND // _TRANSACTIONS - 1, time.perf_counter()
    with closing(psycopg.connect(source, autocommit=True)) as connection:
        for number in range(int(seconds * _TRANSACTIONS)):
            time.sleep(max(0.0, begun + number / _TRANSACTIONS - time.perf_counter()))
            keys = [1 + (number * many + at) % (_KEYS - 1) for at in range(many)]
            connection.execute(_CHANGE, [number, f"city {number}", _MARK, keys])
            clock.committed[number] = time.perf_counter()


def _watch_copy(copy: str, clock: Clock) -> None:
    with closing(psycopg.connect(copy, autocommit=True)) as connection:
        newest = -1
        while not clock.ends.is_set():
            row = connection.execute(f"SELECT points FROM {TABLE} WHERE id = {_MARK}").fetchone()
            number, now = (row[0] if row else -1), time.perf_counter()
            clock.copied.update(dict.fromkeys(range(newest + 1, number + 1), now))
            newest = max(newest, number)
            time.sleep(_LOOK_SECONDS)


def _watch_topic(kafka: KafkaServer, topic: str, clock: Clock) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.url(), "group.id": "clock", "fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    mark, before = f'{{"id":{_MARK}}}'.encode(), b'"city":"city '
    while not clock.ends.is_set():
        for message in consumer.consume(500, 0.01):
            if not message.error() and message.key() == mark:
                number = int((message.value() or b"").rpartition(before)[2].partition(b'"')[0])
                clock.in_topic[number] = time.perf_counter()
    consumer.close()
