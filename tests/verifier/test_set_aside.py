"""Rows that a database did not take and keeps in its quarantine differ from rows that are lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, verify
from tests.rounds import rounds
from tests.runner.projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOTALS = """
@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"], on_bad_row="quarantine"), mode="{mode}",
          trigger=hr.available_now)
def totals(events):
    return {result}
"""
RESULTS = {
    "update": 'events.groupBy("name").agg(F.sum("amount").alias("amount"))',
    "append": 'events.select("name", F.col("amount").cast("bigint").alias("amount"))',
}
BATCHES = [
    [{"name": "apple", "amount": 1}, {"name": None, "amount": 2}],
    [{"name": None, "amount": 3}, {"name": "pear", "amount": 4}],
]


@pytest.mark.parametrize("mode", rounds(RESULTS))
def test_a_row_in_quarantine_is_no_difference_and_a_lost_one_is(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    root = write_project(tmp_path / "p", TOTALS.format(mode=mode, result=RESULTS[mode]), batches=BATCHES)
    assert run(load(root), spark=spark).exit_code == 0
    aside = {"update": 1, "append": 2}[mode]
    verdict = verify(load(root), "totals", spark=spark)
    assert (verdict.state, verdict.rows_set_aside, verdict.rows_actual) == ("equal", aside, 2)
    assert "in the sink's quarantine" in verdict.sentence
    with sqlite3.connect(root / "out.db") as connection:
        connection.execute("DELETE FROM _headrace_quarantine WHERE batch = 1")
    lost = verify(load(root), "totals", spark=spark)
    assert (lost.state, lost.missing) == ("mismatch", 1)


def test_a_row_set_aside_excuses_the_older_row_of_its_key(tmp_path: Path, spark: SparkSession) -> None:
    """The table keeps the row that the one in quarantine was to replace."""
    from headrace.verifier.comparison import compare

    schema = "name STRING, total INT"
    expected = spark.createDataFrame([("a", 2), ("b", 1)], schema)
    actual = spark.createDataFrame([("a", 1), ("b", 1)], schema)
    aside = spark.createDataFrame([("a", 2)], schema)
    assert compare(expected, actual, ("name",), aside).equal
    assert compare(expected, actual, ("name",), aside).rejected == 1
    assert not compare(expected, actual, ("name",)).equal
    assert not compare(expected, actual, ("name",), spark.createDataFrame([("a", 3)], schema)).equal
