"""A table that the real Debezium follows, and its copies: equal at the end, whatever is killed meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
import pytest

import headrace as hr
from services import ConnectServer, MariaDbServer, PostgresServer, process
from tests.connectors.kafka.debezium.feeds import (
    COLUMNS,
    LARGE,
    NAMES,
    SCHEMA,
    Feed,
    await_messages,
    create_table,
    payload,
)
from tests.crash.drivers import Driver, KillAt
from tests.servers import Servers, fresh
from tests.waiting import PATIENCE_SECONDS, eventually, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each starts servers, a worker of Connect and several drivers.
pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

# `make soak` takes 10, for each database that is followed.
MINUTES = float(os.environ.get("HEADRACE_COPY_MINUTES", "2"))
SEED = int(os.environ.get("HEADRACE_COPY_SEED", "40"))
KEYS = 40
ENGINES = ("postgres", "mariadb")
PROJECT = """
name: copies
sources:
  t:
    kafka:
      bootstrap_servers: "{kafka}"
      subscribe: {topic}
      value: debezium
      schema: "{schema}"
      max_offsets_per_trigger: {rows}
queries:
"""
QUERY = """  in_{name}:
    select: SELECT * FROM t
    cdc: {{keys: [id]}}
    trigger: available-now
    sink: {sink}
"""
DATABASE_ERRORS = (psycopg.Error, pymysql.MySQLError, OSError)


@dataclass
class Load:
    """Random changes of the table."""

    feed: Feed
    chance: random.Random
    done: int = 0
    ends: threading.Event = field(default_factory=threading.Event)

    def run(self, changes: int) -> None:
        """Make so many changes; 0: some in each second, until they are to end."""
        while not self._is_over(changes):
            try:
                with self.feed.connection() as connection, connection.cursor() as cursor:
                    while not self._is_over(changes):
                        for statement, values in self._transaction():
                            with contextlib.suppress(psycopg.IntegrityError, pymysql.IntegrityError):
                                cursor.execute(statement, values)
                        self.done += 1
                        if not changes:
                            self.ends.wait(0.02)
            except DATABASE_ERRORS:
                # It was killed: whether it has taken the last statement does not matter.
                self.ends.wait(0.2)

    def _is_over(self, changes: int) -> bool:
        return self.done >= changes if changes else self.ends.is_set()

    def _transaction(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        key, other = self.chance.randrange(KEYS), self.chance.randrange(KEYS)
        amount = self.chance.randrange(-(10**9), 10**9) / 100
        kind = self.chance.choices(
            ("insert", "update", "delete", "move", "truncate", "column"), (30, 40, 15, 10, 0.5, 0.5)
        )[0]
        if kind == "insert":
            large = self.chance.choice(("x", LARGE))
            yield (
                f"INSERT INTO t ({NAMES}) VALUES (%s, true, 7, %s, 1.5, 0.1, %s, 98765.4321, %s, %s, '2024-02-29', "
                "'2024-02-29 12:34:56.789012', '1969-12-31 23:59:59.999', '2024-02-29 12:34:56.789012', %s)",
                (key, self.done, f"{amount:.2f}", f"å {key}", bytes([key]), large),
            )
        elif kind == "update":
            yield "UPDATE t SET must = %s, amount = %s WHERE id = %s", (self.done, f"{amount:.2f}", key)
        elif kind == "delete":
            yield "DELETE FROM t WHERE id = %s", (key,)
        elif kind == "move":
            # PostgreSQL does not send a large value that stays, and the copy has none of the new key.
            yield "UPDATE t SET id = %s WHERE id = %s", (other, key)
        elif kind == "truncate":
            yield "TRUNCATE TABLE t", ()
        else:
            yield f"ALTER TABLE t ADD COLUMN more_{self.done} integer DEFAULT 5", ()


@dataclass
class Copies:
    """The table, its connector, and a project that keeps a copy of it in each of three databases.

    servers: what may be killed. session: gives the session that verifies the copies; drivers have their own.
    """

    root: Path
    feed: Feed
    topic: str
    urls: dict[str, str]
    servers: tuple[Any, ...]
    session: Callable[[], SparkSession]
    # As many as lets the driver die before its last batch.
    rows_a_batch: int = 150

    def write_project(self, kafka: str) -> None:
        table = "table: copy, on_bad_row: quarantine"
        sinks = {
            "postgres": f'{{postgres: {{url: "{self.urls["postgres"]}", {table}}}}}',
            "mariadb": f'{{mysql: {{url: "{self.urls["mariadb"]}", {table}}}}}',
            "sqlite": f"{{sqlite: {{path: result.db, {table}}}}}",
        }
        text = PROJECT.format(kafka=kafka, topic=self.topic, schema=SCHEMA, rows=self.rows_a_batch)
        text += "".join(QUERY.format(name=name, sink=sink) for name, sink in sinks.items())
        (self.root / "headrace.yml").write_text(text)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """A copy by its database's own client, in values that compare."""
        return [tuple(map(alike, COLUMNS, row)) for row in self._read(name, NAMES, "copy")]

    def quarantined_keys(self, name: str) -> set[int]:
        """The keys of the rows that a copy's database keeps apart."""
        return {json.loads(values)["id"] for (values,) in self._read(name, "row_values", "_headrace_quarantine")}

    def _read(self, name: str, columns: str, table: str) -> list[tuple[Any, ...]]:
        if name != "sqlite":
            return Feed(name, self.urls[name], self.feed.connect, self.feed.server).rows(columns, table)
        with contextlib.closing(sqlite3.connect(self.root / "result.db")) as connection:
            return connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()

    def catch_up(self, last: str) -> list[tuple[Any, ...]]:
        """Apply all changes up to a row with this word, which is made; returns the original's rows."""
        made = f"INSERT INTO t (id, must, word) VALUES (-1, 0, '{last}')"
        self.feed.execute("DELETE FROM t WHERE id = -1", made)
        connect, name = self.feed.connect, self.topic.partition(".")[0]
        until("connector", lambda: restart_if_failed(connect, name))
        await_messages(connect.kafka, self.topic, lambda value: says(value, last))
        self.run()
        return self.original()

    def run(self) -> None:
        """Apply all changes that the topic has, after whatever killed the drivers before."""
        result = hr.run(hr.load(self.root), spark=self.session())
        assert result.exit_code == 0, result.outcomes

    def verify(self, name: str) -> None:
        """Show that a copy is the table that its changes make."""
        verdict = hr.verify(hr.load(self.root), f"in_{name}", spark=self.session())
        assert verdict.state == "equal", verdict

    @property
    def log(self) -> str:
        """The end of what the drivers have said."""
        return (self.root / ".driver.log").read_text()[-3000:]

    def original(self) -> list[tuple[Any, ...]]:
        return [tuple(map(alike, COLUMNS, row)) for row in self.feed.rows()]


def alike(column: str, value: Any) -> Any:
    """A value as text that is the same in each database: SQLite has no times and no decimals of its own."""
    if value is None:
        return None
    if column == "yes":
        return bool(value)
    if column in ("amount", "wide"):
        digits = f"{Decimal(str(value)):f}"
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    if column in ("day", "local", "milli", "at"):
        text = str(value).replace("T", " ").removesuffix("Z").removesuffix("+00:00")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value


@pytest.fixture
def copies(request: pytest.FixtureRequest, connect: ConnectServer, tmp_path: Path, engine: str) -> Iterator[Copies]:
    """A followed table with some rows in its snapshot."""
    servers: Servers = request.getfixturevalue("servers")
    # The server that is followed is one of this file's own, for it is killed.
    server: PostgresServer | MariaDbServer = request.getfixturevalue(
        "logged_mariadb" if engine == "mariadb" else "followed_postgres"
    )
    with contextlib.ExitStack() as stack:
        session = partial(request.getfixturevalue, "spark")
        holders = (server, *map(servers.get, ENGINES))
        url, *targets = (stack.enter_context(contextlib.contextmanager(fresh)(of)) for of in holders)
        feed = Feed(engine, url, connect, server)
        feed.execute(create_table(engine))
        Load(feed, random.Random(SEED)).run(60)
        topic = feed.follow({})
        # A server that is followed and written is one to be killed.
        victims = (connect, *dict.fromkeys(holders))
        made = Copies(tmp_path, feed, topic, dict(zip(ENGINES, targets, strict=True)), victims, session)
        made.write_project(connect.kafka.url())
        yield made
        for victim in victims:
            if process.running(victim.home) is None:
                victim.start()
        feed.drop(made.topic)


@pytest.fixture(scope="module")
def followed_postgres(servers: Servers) -> PostgresServer:
    server: PostgresServer = servers.get("postgres")
    return server


def prove(copies: Copies, *, lives: Callable[[], Iterator[None]], changes: int) -> None:
    """Let something happen to a project and its feed under load; then each copy equals the original.

    A copy lacks the rows of which PostgreSQL has not sent all. It gets them when they are updated and sent whole.
    """
    load = Load(copies.feed, random.Random(SEED + 1))
    thread = threading.Thread(target=load.run, args=(changes,), daemon=True)
    thread.start()
    for _ in lives():
        pass
    load.ends.set()
    thread.join(120)
    assert not thread.is_alive()
    original = copies.catch_up("the end")
    lacking = {row[0] for row in original} - {row[0] for row in copies.rows("sqlite")}
    assert lacking <= copies.quarantined_keys("sqlite")
    for name in (*ENGINES, "sqlite"):
        assert copies.rows(name) == [row for row in original if row[0] not in lacking], name
    copies.verify("sqlite")
    if copies.feed.engine == "mariadb":
        # It sends whole rows.
        assert not lacking
    else:
        keys = ", ".join(map(str, sorted(lacking)))
        updates = [f"UPDATE t SET id = id WHERE id IN ({keys})"] if lacking else []
        copies.feed.execute("ALTER TABLE t REPLICA IDENTITY FULL", *updates)
        original = copies.catch_up("the end of what was lacking")
        for name in (*ENGINES, "sqlite"):
            assert copies.rows(name) == original, name
    for name in ENGINES:
        copies.verify(name)


def restart_if_failed(connect: ConnectServer, name: str) -> bool:
    """Whether the connector's task runs, which is started again where it has failed."""
    tasks = connect.tasks(name)
    if any(task["state"] == "FAILED" for task in tasks):
        connect.recover(name)
        return False
    return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)


def says(value: bytes, word: str) -> bool:
    return word.encode() in value and (payload(value).get("after") or {}).get("word") == word


@pytest.mark.capability("CDC-DBZ-02")
@pytest.mark.parametrize("engine", ["postgres", pytest.param("mariadb", marks=pytest.mark.long)])
def test_copies_equal_the_table_after_kills_of_the_driver_and_of_the_connector(copies: Copies) -> None:
    connect = copies.feed.connect

    def lives() -> Iterator[None]:
        # The driver dies with the rows of its first batch in the database, but not in Spark's checkpoint.
        first = Driver(copies.root, kill=KillAt("after-transaction", 0))
        connect.kill()
        yield
        connect.start()
        assert first.wait(PATIENCE_SECONDS) < 0, copies.log
        yield

    prove(copies, lives=lives, changes=250)


@pytest.mark.capability("CDC-DBZ-02")
@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES + 1_200)
@pytest.mark.parametrize("engine", ENGINES)
def test_copies_equal_the_table_after_minutes_of_kills_of_everything(copies: Copies) -> None:
    copies.rows_a_batch = 2000
    copies.write_project(copies.feed.connect.kafka.url())
    chance, connect = random.Random(SEED), copies.feed.connect
    ends = threading.Event()
    timer = threading.Timer(60 * MINUTES, ends.set)
    timer.start()

    def kill_and_start(victim: Any) -> None:
        victim.kill()
        ends.wait(chance.uniform(0, 3))
        victim.start()

    def lives() -> Iterator[None]:
        while not ends.is_set():
            driver = Driver(copies.root)
            for _ in range(chance.randrange(3)):
                ends.wait(chance.uniform(1, 8))
                kill_and_start(chance.choice(copies.servers))
                with contextlib.suppress(OSError):
                    restart_if_failed(connect, copies.topic.partition(".")[0])
            driver.kill_after(chance.uniform(5, 25))
            yield

    prove(copies, lives=lives, changes=0)


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_an_incremental_snapshot_and_the_changes_around_it_make_the_table(copies: Copies) -> None:
    feed, kafka = copies.feed, copies.feed.connect.kafka
    schema = copies.topic.split(".")[1]
    feed.drop(copies.topic)
    feed.execute("CREATE TABLE signals (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))")
    tables = {"table.include.list": f"{schema}.t,{schema}.signals", "signal.data.collection": f"{schema}.signals"}
    copies.topic = feed.follow(tables)
    copies.write_project(kafka.url())
    first, second, third = [row[0] for row in copies.original()][:3]
    signal = json.dumps({"data-collections": [f"{schema}.t"]})
    with feed.connection() as connection, connection.cursor() as cursor:
        # It is open while the snapshot is read.
        cursor.execute("BEGIN")
        cursor.execute(f"UPDATE t SET word = 'open' WHERE id = {first}")
        feed.execute(f"INSERT INTO signals VALUES ('1', 'execute-snapshot', '{signal}')")
        await_messages(kafka, copies.topic, lambda value: payload(value)["source"]["snapshot"] == "incremental")
        cursor.execute("COMMIT")
    feed.execute(f"UPDATE t SET word = 'later' WHERE id = {second}", f"DELETE FROM t WHERE id = {third}")
    original = copies.catch_up("the end")
    assert copies.rows("sqlite") == original
    copies.verify("sqlite")


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgres"])
def test_a_second_snapshot_brings_what_was_missed_and_not_the_deletes(copies: Copies) -> None:
    """The slot is lost: what happened meanwhile is read again, but without what was deleted, until a rebuild."""
    feed, connect = copies.feed, copies.feed.connect
    copies.run()
    before = {row[0] for row in copies.original()}
    assert len(before) > 2
    gone, changed = sorted(before)[:2]
    name = copies.topic.partition(".")[0]
    connect.request("PUT", f"/connectors/{name}/stop")
    eventually(lambda: not connect.tasks(name))
    with feed.connection() as connection:
        until(
            "free slot",
            lambda: not connection.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchall(),
        )
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    feed.execute(f"DELETE FROM t WHERE id = {gone}", f"UPDATE t SET word = 'missed' WHERE id = {changed}")
    connect.request("DELETE", f"/connectors/{name}/offsets")
    connect.request("PUT", f"/connectors/{name}/resume")
    connect.await_running(name)
    original = copies.catch_up("the end")
    assert [row for row in copies.rows("sqlite") if row[0] != gone] == original
    assert gone in {row[0] for row in copies.rows("sqlite")}
    copies.verify("sqlite")

    feed.drop(copies.topic)
    copies.topic = feed.follow({})
    copies.write_project(connect.kafka.url())
    await_messages(connect.kafka, copies.topic, lambda value: says(value, "the end"))
    hr.rebuild(hr.load(copies.root), "in_sqlite", spark=copies.session()).apply()
    assert copies.rows("sqlite") == original
    copies.verify("sqlite")
