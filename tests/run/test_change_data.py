"""Change data from files and Kafka to databases: run, verify, plan; read by clients that are not ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr

from .projects import land, rows

pytestmark = pytest.mark.spark

SOURCE = """
sources:
  customers:
    files:
      path: landing
      format: json
      max_files_per_trigger: 1
      schema: "id BIGINT, name STRING, city STRING, op STRING, version BIGINT"
queries:
  copy:
    select: SELECT id, name, city FROM customers WHERE city <> 'test'
    trigger: available-now
    sink: {sqlite: {path: out.db, table: customers}}
    cdc: {keys: [id], sequence_by: version, apply_as_deletes: "op = 'D'"%s}
"""
Change = tuple[int | None, str | None, str | None, str, int | None]


def project(root: Path, batches: Sequence[Iterable[Change]], options: str = "", text: str = SOURCE) -> Path:
    """A project that copies customers; each batch is a file of changes (id, name, city, operation, version)."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(f"name: {root.name}\n{text % options}")
    (root / "landing").mkdir(exist_ok=True)
    begun = len(list((root / "landing").iterdir()))
    for number, changes in enumerate(batches):
        land_changes(root, begun + number, changes)
    return root


def land_changes(root: Path, number: int, changes: Iterable[Change]) -> None:
    land(root, number, (dict(zip(("id", "name", "city", "op", "version"), change, strict=True)) for change in changes))


def run(root: Path, spark: SparkSession) -> None:
    hr.run(hr.load(root), spark=spark)


def verdict(root: Path, spark: SparkSession) -> str:
    return hr.verify(hr.load(root), "copy", spark=spark).state


BATCHES: list[list[Change]] = [
    [(1, "Ada", "Paris", "U", 1), (2, "Bob", "Rome", "U", 2), (1, "Ada", "test", "U", 3)],
    # Back from the filter; a delete that knows the key alone; and a change that is older than what is there.
    [(1, "Ada", "Lyon", "U", 5), (2, None, None, "D", 6), (2, "Bob", "Oslo", "U", 4), (3, "Cy", "Bonn", "U", 7)],
    [(1, "old", "Nice", "U", 4), (2, "old", "Bern", "U", 5)],
]


def test_the_copy_is_the_newest_row_of_each_key_and_verify_says_so(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "shop", BATCHES)
    run(root, spark)
    assert rows(root / "out.db", "SELECT id, name, city FROM customers ORDER BY id") == [
        (1, "Ada", "Lyon"),
        (3, "Cy", "Bonn"),
    ]
    assert verdict(root, spark) == "equal"
    with sqlite3.connect(root / "out.db") as connection:
        connection.execute("UPDATE customers SET city = 'Rome' WHERE id = 1")
    assert verdict(root, spark) == "mismatch"
