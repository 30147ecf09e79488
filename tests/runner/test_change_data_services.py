"""Change data from a Kafka topic to PostgreSQL, read by psycopg; rewound, run again and verified."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import headrace as hr
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
