"""Change data from a Kafka topic to PostgreSQL, read by psycopg; rewound, run again and verified."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.cli import main
from tests.servers import Topics

from .test_change_data import Change, run, verdict

pytestmark = pytest.mark.services

PROJECT = """
name: shop
sources:
  customers:
    kafka:
      bootstrap_servers: "%s"
      subscribe: %s
      value: json
      schema: "id BIGINT, name STRING, city STRING, op STRING, version BIGINT"
queries:
  copy:
    select: SELECT id AS customer, upper(city) AS city FROM customers WHERE city <> 'test'
    trigger: available-now
    sink: {postgres: {url: "%s", table: customers, rewindable: 7 days}}
    cdc: {keys: [customer], sequence_by: version, apply_as_deletes: "op = 'D'", apply_as_truncates: "op = 'T'"}
"""
BATCHES: list[list[Change]] = [
    [(1, "Ada", "Paris", "U", 1), (2, "Bob", "Rome", "U", 2), (3, "Cy", "Bonn", "U", 3)],
    # Equal sequences: the later offset holds. A truncate outranks what is older, also what comes later.
    [(4, "Di", "Lyon", "U", 9), (4, "Di", "Nice", "U", 9), (None, None, None, "T", 5), (2, "Bob", "Oslo", "U", 6)],
    [(1, "Ada", "Bern", "U", 4), (3, None, None, "D", 4), (2, None, None, "D", 8)],
]


# tests/connectors/kafka/debezium/test_copies.py follows a topic into PostgreSQL, and test_change_data goes back.
@pytest.mark.long
def test_a_topic_of_changes_becomes_a_table_that_can_go_back(
    tmp_path: Path, spark: SparkSession, kafka: Topics, postgres_url: str
) -> None:
    topic = kafka.make()
    root = tmp_path / "shop"
    root.mkdir()
    (root / "headrace.yml").write_text(PROJECT % (kafka.url, topic, postgres_url))

    def table() -> list[tuple[int, str]]:
        with psycopg.connect(postgres_url) as connection:
            return connection.execute("SELECT customer, city FROM customers ORDER BY customer").fetchall()

    held = []
    for changes in BATCHES:
        names = ("id", "name", "city", "op", "version")
        kafka.send(topic, *[json.dumps(dict(zip(names, change, strict=True))) for change in changes])
        assert run(root, spark) == []
        held.append(table())
    assert held == [
        [(1, "PARIS"), (2, "ROME"), (3, "BONN")],
        [(2, "OSLO"), (4, "NICE")],
        [(4, "NICE")],
    ]
    assert verdict(root, spark) == "equal"
    hr.rewind(hr.load(root), "copy", to_batch=0, spark=spark).apply()
    assert table() == held[0]
    assert run(root, spark) == []
    assert table() == held[2]
    assert verdict(root, spark) == "equal"


FOLLOWED = """
name: shop
sources:
  customers:
    kafka: {bootstrap_servers: "%s", subscribe: %s, value: debezium, schema: "id BIGINT, name STRING"}
queries:
  copy:
    select: SELECT id, name FROM customers
    trigger: available-now
    sink: {sqlite: {path: out.db, table: customers}}
    cdc: {keys: [id]}
"""


@pytest.mark.capability("CDC-08")
def test_the_lag_is_from_the_change_in_the_source_to_the_end_of_its_batch(
    tmp_path: Path, spark: SparkSession, kafka: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    made, topic = time.time() - 3600, kafka.make()
    for number, seconds in enumerate((made - 60, made)):
        row = {"id": number, "name": "Ada"}
        source = {"connector": "postgresql", "lsn": number, "ts_ms": int(seconds * 1000)}
        kafka.send(
            topic, json.dumps({"before": None, "after": row, "source": source, "op": "c"}), key=f'{{"id": {number}}}'
        )
    (tmp_path / "headrace.yml").write_text(FOLLOWED % (kafka.url, topic))
    assert [outcome.finding for outcome in hr.run(hr.load(tmp_path), spark=spark).outcomes] == [None]
    (status,) = hr.status(hr.load(tmp_path))
    assert status.change_lag_seconds is not None
    assert 3600 < status.change_lag_seconds < time.time() - made + 1
    assert main(["status", "-C", str(tmp_path)]) == 0
    assert f"2 inserts, {status.change_lag_seconds:.1f} s after the source" in capsys.readouterr().out
