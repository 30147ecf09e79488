"""Tables that the real Debezium follows: their columns, a load of changes, and the settings of its connectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from services import ConnectServer, KafkaServer, MariaDbServer, PostgresServer
from tests.waiting import until

_numbers = count(1)
# A connector's setting of a converter counts only where it names the converter as well.
NO_SCHEMA = {
    f"{part}.converter{setting}": value
    for part in ("key", "value")
    for setting, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "false"))
}
FLAT = {
    "transforms": "flat",
    "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.flat.delete.tombstone.handling.mode": "rewrite-with-tombstone",
}
POSTGRES_FIELDS = {"transforms.flat.add.fields": "op,source.lsn,source.sequence,source.ts_us"}
MYSQL_FIELDS = {"transforms.flat.add.fields": "op,file,pos,row,source.ts_us"}
TEXTS = {"decimal.handling.mode": "string", "time.precision.mode": "isostring", "binary.handling.mode": "bytes"}

# Each way in which a connector writes the same changes, and the options of the source for it.
POSTGRES_WAYS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "envelope": ({}, {}),
    "flat": ({**FLAT, **POSTGRES_FIELDS}, {}),
    "envelope-bare": ({**NO_SCHEMA, **TEXTS}, TEXTS),
    "flat-bare": (
        {**NO_SCHEMA, **FLAT, **POSTGRES_FIELDS, "time.precision.mode": "microseconds", "binary.handling.mode": "hex"},
        {"decimal.handling.mode": "precise", "time.precision.mode": "microseconds", "binary.handling.mode": "hex"},
    ),
    "connect-double": ({"decimal.handling.mode": "double", "time.precision.mode": "connect"}, {}),
    "nanoseconds-base64": (
        {"time.precision.mode": "nanoseconds", "binary.handling.mode": "base64-url-safe"},
        {"binary.handling.mode": "base64-url-safe"},
    ),
    "adaptive-micro": (
        {"time.precision.mode": "adaptive_time_microseconds", "binary.handling.mode": "base64"},
        {"binary.handling.mode": "base64"},
    ),
}
MARIADB_WAYS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "envelope": ({}, {}),
    "flat-bare": ({**NO_SCHEMA, **FLAT, **MYSQL_FIELDS, **TEXTS}, TEXTS),
}

# name: (PostgreSQL's type, MariaDB's, the source's)
COLUMNS = {
    "id": ("bigint PRIMARY KEY", "bigint PRIMARY KEY", "BIGINT"),
    "yes": ("boolean", "boolean", "BOOLEAN"),
    "small": ("smallint", "smallint", "SMALLINT"),
    "must": ("integer NOT NULL", "integer NOT NULL", "INT"),
    "single": ("real", "float", "FLOAT"),
    "dbl": ("double precision", "double", "DOUBLE"),
    "amount": ("numeric(10,2)", "decimal(10,2)", "DECIMAL(10,2)"),
    "wide": ("numeric", "decimal(38,10)", "DECIMAL(38,10)"),
    "word": ("text NOT NULL", "varchar(200) NOT NULL", "STRING"),
    "bytes": ("bytea", "varbinary(200)", "BINARY"),
    "day": ("date", "date", "DATE"),
    "local": ("timestamp(6)", "datetime(6)", "TIMESTAMP_NTZ"),
    "milli": ("timestamp(3)", "datetime(3)", "TIMESTAMP_NTZ"),
    "at": ("timestamptz", "timestamp(6) NULL", "TIMESTAMP"),
    "large": ("text", "longtext", "STRING"),
}
SCHEMA = ", ".join(f"{name} {kinds[2]}" for name, kinds in COLUMNS.items())
# Too long for a page of PostgreSQL, also when it is compressed: it is kept apart, and not sent if it does not change.
LARGE = "".join(format(number * 7919 % 65521, "04x") for number in range(3000))
NAMES = ", ".join(COLUMNS)
SAMPLE = (
    "true, -7, 42, 1.5, 0.1, {amount}, 98765.4321, 'å\"x\\\\ ü', {bytes}, '2024-02-29', '2024-02-29 12:34:56.789012', "
    "'1969-12-31 23:59:59.999', '2024-02-29 12:34:56.789012{zone}', '{large}'"
)


def statements(engine: str) -> list[str]:
    """A load: what a snapshot finds, an empty text, and what the log has."""
    is_postgres = engine == "postgres"
    words = {"bytes": "'\\x00ff10'" if is_postgres else "x'00ff10'", "zone": "+00" if is_postgres else ""}

    def insert(key: int, amount: str, large: str) -> str:
        values = SAMPLE.format(amount=amount, large=large, **words)
        text = values.replace("\\\\", "\\") if is_postgres else values
        return f"INSERT INTO t ({NAMES}) VALUES ({key}, {text})"

    special = ", 'NaN', 'Infinity'" if is_postgres else ", NULL, NULL"
    return [
        insert(1, "1234.50", LARGE),
        f"INSERT INTO t (id, must, word, dbl, single) VALUES (2, 0, ''{special})",
        insert(3, "-0.01", "x"),
        "",
        "UPDATE t SET word = 'changed' WHERE id = 1",
        "UPDATE t SET id = 20 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        insert(3, "99999999.99", LARGE),
        insert(4, "0", "y"),
        "UPDATE t SET amount = -amount WHERE id IN (1, 3)",
        "DELETE FROM t WHERE id = 4",
        "UPDATE t SET large = 'short' WHERE id = 3",
        "ALTER TABLE t ADD COLUMN more integer DEFAULT 5",
        "UPDATE t SET word = 'after' WHERE id = 20",
    ]


def create_table(engine: str, name: str = "t") -> str:
    columns = ", ".join(f"{column} {kinds[0 if engine == 'postgres' else 1]}" for column, kinds in COLUMNS.items())
    return f"CREATE TABLE {name} ({columns})"


@dataclass
class Feed:
    """One database that connectors follow into topics."""

    engine: str
    url: str
    connect: ConnectServer
    server: PostgresServer | MariaDbServer

    def execute(self, *given: str) -> None:
        with self.connection() as connection, connection.cursor() as cursor:
            for statement in given:
                cursor.execute(statement)

    def connection(self) -> Any:
        """A connection of the database's own client, each of whose statements is a transaction."""
        place = urlsplit(self.url)
        if self.engine == "postgres":
            return psycopg.connect(self.url, autocommit=True)
        return pymysql.connect(
            host="127.0.0.1",
            port=place.port or 0,
            user=place.username,
            password=place.password or "",
            database=place.path[1:],
            autocommit=True,
            ssl_disabled=True,
            init_command="SET time_zone = '+00:00'",
        )

    def rows(self, columns: str = NAMES, table: str = "t") -> list[tuple[Any, ...]]:
        """The table, by key, as the database's own client has it."""
        with self.connection() as connection, connection.cursor() as cursor:
            if self.engine == "postgres":
                cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute(f"SELECT {columns} FROM {table} ORDER BY 1")
            return [tuple(row) for row in cursor.fetchall()]

    def follow(self, settings: Mapping[str, str], *, table: str = "t") -> str:
        """Let a connector follow a table that has rows; returns its topic once the snapshot has begun."""
        name = f"{self.engine}{next(_numbers)}{self.connect.home.name[-6:].lower().replace('_', 'x')}"
        place = urlsplit(self.url)
        common = {
            "topic.prefix": name,
            "database.hostname": "127.0.0.1",
            "database.port": place.port,
            "database.user": place.username,
            "database.password": place.password,
            # Truncates are skipped by default.
            "skipped.operations": "none",
            "topic.creation.default.replication.factor": 1,
            "topic.creation.default.partitions": 1,
            "poll.interval.ms": 50,
        }
        database = place.path[1:]
        if self.engine == "postgres":
            own = {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.dbname": database,
                "plugin.name": "pgoutput",
                "publication.autocreate.mode": "filtered",
                "publication.name": name,
                "slot.name": name,
                "slot.drop.on.stop": "false",
                "table.include.list": f"public.{table}",
            }
        else:
            own = {
                "connector.class": "io.debezium.connector.mysql.MySqlConnector",
                "database.include.list": database,
                "table.include.list": f"{database}.{table}",
                "database.server.id": 5000 + next(_numbers),
                "database.ssl.mode": "disabled",
                "schema.history.internal.kafka.bootstrap.servers": self.connect.kafka.url(),
                "schema.history.internal.kafka.topic": f"{name}-history",
            }
        self.connect.add(name, {**common, **own, **settings})
        topic = f"{name}.{'public' if self.engine == 'postgres' else database}.{table}"
        # Connect makes the topic for the first message.
        await_messages(self.connect.kafka, topic, lambda value: True)
        return topic

    def drop(self, topic: str) -> None:
        """End the connector of a topic, and with it what the database keeps for it."""
        name = topic.partition(".")[0]
        self.connect.delete(name)
        if self.engine == "postgres":
            gone = f"SELECT pg_drop_replication_slot('{name}') FROM pg_replication_slots WHERE slot_name = '{name}'"
            free = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{name}' AND active"
            with self.connection() as connection:
                until("free slot", lambda: connection.execute(free).fetchone() == (0,))
                connection.execute(gone)


def messages(kafka: KafkaServer, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each message that a topic holds now."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.url(),
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        if topic not in consumer.list_topics(timeout=10).topics:
            return []
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return list(_until_end(consumer))
    finally:
        consumer.close()


def _until_end(consumer: Consumer) -> Iterator[tuple[bytes | None, bytes | None]]:
    while True:
        message = consumer.poll(10)
        assert message is not None, "the broker went silent"
        if message.error():
            return
        yield message.key(), message.value()


def await_messages(
    kafka: KafkaServer, topic: str, is_last: Callable[[bytes], bool]
) -> list[tuple[bytes | None, bytes | None]]:
    """Wait until a topic holds a value that is the last one."""
    all_: list[tuple[bytes | None, bytes | None]] = []

    def arrived() -> bool:
        all_[:] = messages(kafka, topic)
        return any(value is not None and is_last(value) for _, value in all_)

    until("last message", arrived)
    return all_


def payload(value: bytes) -> Any:
    """What a message says, without its schema."""
    parsed = json.loads(value)
    return parsed["payload"] if set(parsed) == {"schema", "payload"} else parsed
