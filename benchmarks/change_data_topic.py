"""A topic of changes as Debezium writes them, the rows that they lead to, and the project that copies them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias

from confluent_kafka import Producer

from benchmarks.model_kafka import PARTITIONS, Broker

Row: TypeAlias = tuple[int, str, str, int]
COLUMNS = ("id", "name", "city", "points")
TABLE = "customers"
PROJECT = """name: copy
sources:
  customers:
    kafka:
      bootstrap_servers: "{broker}"
      subscribe: {topic}
      value: debezium
      schema: id BIGINT, name STRING, city STRING, points BIGINT
queries:
  customers_copy:
    select: SELECT * FROM customers
    cdc: {{keys: [id]}}
    trigger: {trigger}
    sink: {{postgres: {{url: "{url}", table: customers}}}}
targets:
  dev: {{master: "local[2]"}}
"""
_SOURCE = {
    "version": "3.6.1.Final",
    "connector": "postgresql",
    "name": "shop",
    "snapshot": "false",
    "db": "shop",
    "schema": "public",
    "table": TABLE,
    "xmin": None,
    "origin": None,
    "origin_lsn": None,
}


def create_table(key: str = "PRIMARY KEY") -> str:
    """Return the statement that makes the table."""
    return f"CREATE TABLE {TABLE} (id bigint {key}, name text, city text, points bigint)"


def fill(broker: Broker, topic: str, count: int, keys: int) -> list[Row]:
    """Write `count` changes of `keys` rows, those of one key into one partition; return the rows at their end.

    The messages have no schema and whole rows before the change, as with REPLICA IDENTITY FULL.
    """
    settings = {"bootstrap.servers": broker.url, "linger.ms": 50, "compression.type": "lz4"}
    producer = Producer({**settings, "queue.buffering.max.messages": 500_000})
    rows: dict[int, Row] = {}
    for number in range(count):
        key = number * 7919 % keys
        before = rows.pop(key, None)
        is_delete = before is not None and number % 20 == 0
        if not is_delete:
            rows[key] = (key, f"name {number}", f"city {number % 97}", number % 1000)
        for value in _messages(number, before, rows.get(key)):
            _produce(producer, topic, f'{{"id":{key}}}', value, key % PARTITIONS)
    producer.flush()
    return sorted(rows.values())


def _messages(number: int, before: Row | None, after: Row | None) -> Iterator[str | None]:
    moment = 1_767_225_600_000 + number
    envelope = {
        "before": before and dict(zip(COLUMNS, before, strict=True)),
        "after": after and dict(zip(COLUMNS, after, strict=True)),
        "source": {**_SOURCE, "ts_ms": moment, "txId": number, "lsn": 1_000_000 + number * 100},
        "transaction": None,
        "op": "d" if after is None else "u" if before else "c",
        "ts_ms": moment,
    }
    yield json.dumps(envelope, separators=(",", ":"))
    if after is None:
        yield None  # Debezium's tombstone.


def _produce(producer: Producer, topic: str, key: str, value: str | None, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition)
            return
        except BufferError:
            producer.poll(0.1)
