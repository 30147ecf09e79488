"""The change data feed of a Delta table as a source: a copy in SQLite equals the table as delta-rs reads it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import deltalake
import pyarrow as pa
import pytest

import headrace as hr
from headrace.connectors.delta.source import Delta
from headrace.errors import SourceError
from headrace.testing.conformance import drain, prefix_of
from headrace.testing.conformance.triggers import NAME
from tests.connectors.delta.test_source import TestDelta as DeltaSuite
from tests.connectors.suites import only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]

PROJECT = """
sources:
  customers:
    delta: {path: table, read_change_feed: true, max_files_per_trigger: 1%s}
queries:
  copy:
    select: SELECT id, name, city FROM customers WHERE city <> 'test'
    trigger: available-now
    sink: {sqlite: {path: out.db, table: customers}}
    cdc: {keys: [id]%s}
"""
# Each is one version; what was inserted before the first run comes as a table.
STEPS = (
    "UPDATE {table} SET city = 'Lyon' WHERE id = 1",
    # A key that changes, to one that is new and to one that another row had.
    "UPDATE {table} SET id = id + 1 WHERE id >= 3",
    "DELETE FROM {table} WHERE id = 2",
    "MERGE INTO {table} AS t USING (SELECT 1L AS id, 'Ada' AS name, 'test' AS city UNION ALL "
    "SELECT 9, 'Ida', 'Ulm') AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "UPDATE {table} SET city = 'Paris' WHERE id = 1",
    "INSERT OVERWRITE {table} SELECT id, name, 'Bonn' AS city FROM {table} WHERE id <> 9",
    "OPTIMIZE {table}",
    "INSERT INTO {table} VALUES (2, 'Bob', 'Oslo'), (7, 'Eva', 'test')",
)


@only("protocol", "comes_again", "prefix")
class TestChangeFeed(DeltaSuite):
    options: ClassVar[dict[str, Any]] = {"read_change_feed": True}

    def make(self, home: Path) -> Delta:
        source = super().make(home)
        enable(self.spark, self.place(home))
        return source


def enable(spark: SparkSession, place: str | Path, value: str = "true") -> None:
    spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES (delta.enableChangeDataFeed = {value})")


def table_in(root: Path, spark: SparkSession, *, vectors: bool = False) -> Path:
    """A table that keeps its changes, with four rows."""
    table = root / "table"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, name STRING, city STRING) USING delta TBLPROPERTIES "
        f"(delta.enableChangeDataFeed = true, delta.enableDeletionVectors = {str(vectors).lower()})"
    )
    for row in "(1, 'Ada', 'Paris')", "(2, 'Bob', 'Rome')", "(3, 'Cy', 'Bonn'), (4, 'Dan', 'test')":
        spark.sql(f"INSERT INTO delta.`{table}` VALUES {row}")
    return table


def project_in(root: Path, options: str = "", source: str = "") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(f"name: {root.name}\n{PROJECT % (source, options)}")
    return root


def run(root: Path, spark: SparkSession) -> list[str]:
    result = hr.run(hr.load(root), spark=spark)
    return [outcome.finding.code for outcome in result.outcomes if outcome.finding is not None]


def copied(root: Path, columns: str = "id, name, city") -> list[Any]:
    with closing(sqlite3.connect(root / "out.db")) as connection:
        return connection.execute(f"SELECT {columns} FROM customers ORDER BY {columns}").fetchall()


def expected(table: Path) -> list[Any]:
    """The rows that the query gives, by an engine in Rust, which also knows deletion vectors."""
    engine = deltalake.QueryBuilder().register("customers", deltalake.DeltaTable(table))
    answer = engine.execute("SELECT id, name, city FROM customers WHERE city <> 'test' ORDER BY id, name, city")
    return [tuple(row.values()) for row in pa.table(answer.read_all()).to_pylist()]


@pytest.mark.capability("CDC-11")
@pytest.mark.parametrize("vectors", [False, pytest.param(True, marks=pytest.mark.long)], ids=["files", "vectors"])
def test_a_copy_equals_the_table_after_each_version(tmp_path: Path, spark: SparkSession, vectors: bool) -> None:
    root = project_in(tmp_path / "shop")
    table = table_in(root, spark, vectors=vectors)
    assert run(root, spark) == []
    assert copied(root) == expected(table)
    for step in STEPS:
        spark.sql(step.format(table=f"delta.`{table}`"))
    assert run(root, spark) == []
    assert copied(root) == expected(table)
    assert hr.verify(hr.load(root), "copy", spark=spark).state == "equal"


def test_a_history_has_the_versions_and_an_update_of_another_column_begins_no_interval(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = project_in(tmp_path / "shop", ", stored_as_scd_type: 2, track_history_column_list: [city]")
    table = f"delta.`{table_in(root, spark)}`"
    assert run(root, spark) == []
    spark.sql(f"UPDATE {table} SET name = 'Ada L.' WHERE id = 1")
    spark.sql(f"UPDATE {table} SET city = 'Lyon' WHERE id = 1")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    assert run(root, spark) == []
    assert copied(root, "id, name, city, __START_AT, __END_AT") == [
        (1, "Ada L.", "Lyon", "5", None),
        (1, "Ada L.", "Paris", "3", "5"),
        (2, "Bob", "Rome", "3", "6"),
        (3, "Cy", "Bonn", "3", None),
    ]
    assert hr.verify(hr.load(root), "copy", spark=spark).state == "equal"


def test_a_version_that_several_batches_took_is_read_as_far_as_they_went(tmp_path: Path, spark: SparkSession) -> None:
    table = table_in(tmp_path, spark)
    source = Delta(path=str(table), read_change_feed=True, starting_version=4, max_files_per_trigger=1)
    spark.range(6).selectExpr("id", "'a' AS name", "'b' AS city").repartition(3).write.format("delta").mode(
        "append"
    ).save(str(table))
    rows, _ = drain(source.stream(spark, NAME), tmp_path / "checkpoint")
    prefix = prefix_of(tmp_path / "checkpoint")
    assert len(prefix.batches) == len(rows) == 3
    for count in range(1, 4):
        part = replace(prefix, batches=prefix.batches[:count])
        there = source.read(spark, part, batch_column="batch").select("id", "batch").collect()
        assert sorted(map(tuple, there)) == sorted((row[0], number) for number in range(count) for row in rows[number])


def test_changes_that_were_not_kept_end_the_query(tmp_path: Path, spark: SparkSession) -> None:
    root = project_in(tmp_path / "shop")
    table = table_in(root, spark)
    assert run(root, spark) == []
    enable(spark, table, "false")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    with pytest.raises(SourceError) as refused:
        hr.load(root).sources["customers"].connector.check_connection(spark)
    assert refused.value.findings[0].code == "HR332"
    assert "ALTER TABLE" in refused.value.findings[0].fix
    enable(spark, table)
    assert run(root, spark) == ["HR343"]


@pytest.mark.parametrize(
    ("options", "source", "code", "word"),
    [
        (", sequence_by: id", "", "HR299", "sequence_by"),
        (", apply_as_deletes: \"city = 'x'\"", "", "HR299", "apply_as_deletes"),
        ("", ", ignore_deletes: true", "HR113", "ignore_deletes"),
        ("", ", exclude_regex: a", "HR113", "exclude_regex"),
    ],
)
def test_what_contradicts_the_feed_is_refused(tmp_path: Path, options: str, source: str, code: str, word: str) -> None:
    findings = hr.check(hr.load(project_in(tmp_path, options, source)), spark=False).findings
    assert [(finding.code, word in finding.what) for finding in findings if finding.severity == "error"] == [
        (code, True)
    ]
