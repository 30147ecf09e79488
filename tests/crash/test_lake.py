"""Drivers that die before and after the transaction of a Delta and an Iceberg table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, verify
from tests.connectors.iceberg import tables as iceberg_tables
from tests.crash.drivers import Driver, KillAt
from tests.runner.projects import land, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The session and the drivers need Delta's jar, which the tier of services has.
pytestmark = [pytest.mark.services, pytest.mark.connectors, pytest.mark.timeout(300)]

PROJECT = """
@hr.query(sink=hr.sink.{sink}, mode="append", trigger=hr.available_now)
def {kind}(events):
    return events.select("name", "amount")
"""
FRUIT = [{"name": name, "amount": amount} for amount, name in enumerate(("apple", "pear", "fig", "plum"))]


def content(home: Path, kind: str, spark: SparkSession) -> list[tuple[str, int]]:
    """The rows of the table, as readers of it see them."""
    if kind == "iceberg":
        return sorted((row["name"], row["amount"]) for row in iceberg_tables.content(home, "db.kept"))
    return sorted((row["name"], row["amount"]) for row in spark.read.format("delta").load(str(home / "kept")).collect())


# tests/upgrade lets a batch of each table come again after such a kill.
@pytest.mark.long
@pytest.mark.capability("SINK-LAKE-01")
def test_a_kill_on_either_side_of_the_transaction_loses_and_repeats_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    """One driver writes both tables, and dies when both queries have come to the boundary."""
    sinks = {
        "delta": f"delta({str(tmp_path / 'kept')!r})",
        "iceberg": f"iceberg('db.kept', catalog={iceberg_tables.properties(tmp_path)!r})",
    }
    project = "\n".join(PROJECT.format(kind=kind, sink=sink) for kind, sink in sinks.items())
    root = write_project(tmp_path / "p", project, batches=[[row] for row in FRUIT[:3]])
    expected = [(row["name"], row["amount"]) for row in FRUIT]

    def contents() -> list[list[tuple[str, int]]]:
        return [content(tmp_path, kind, spark) for kind in sinks]

    assert Driver(root, kill=KillAt("after-transaction", 0), arguments=["--together"]).wait() == -9
    assert contents() == [sorted(expected[:1])] * 2
    assert Driver(root, kill=KillAt("before-transaction", 2), arguments=["--together"]).wait() == -9
    assert contents() == [sorted(expected[:2])] * 2
    land(root, 3, FRUIT[3:])
    assert run(load(root), spark=spark).exit_code == 0
    assert contents() == [sorted(expected)] * 2
    assert [verify(load(root), kind, spark=spark).state for kind in sinks] == ["equal", "equal"]
