"""An Iceberg table that a job of plain PySpark has written becomes a query's result, with the job's checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.checkpoint import Checkpoint
from headrace.errors import HeadraceError
from headrace.spark.jvm.session_conf import apply_settings
from headrace.testing.conformance import forget_commit
from tests.changes.former_jobs import PLAIN, begin, land, land_more, require_unchanged, stream
from tests.connectors.iceberg import tables as iceberg_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PIPELINE = """
import headrace as hr

CATALOG = {catalog}
events = hr.source.files("events", format="json", schema="name STRING, at TIMESTAMP, amount INT")

@hr.query(sink=hr.sink.iceberg("db.{table}", catalog=CATALOG{more}){former})
def {query}(events):
    return events.select("name", "amount")

@hr.query(sink=hr.sink.iceberg("db.nothing", catalog=CATALOG))
def nothing(events):
    return events.select("name", "amount")

@hr.query(sink=hr.sink.iceberg("db.other", catalog=CATALOG))
def other(events):
    return events.select("name", "amount")
"""
COLUMNS = pa.schema([("name", pa.string()), ("amount", pa.int32())])


def rows(home: Path, table: str) -> list[tuple[str, int]]:
    return sorted((row["name"], row["amount"]) for row in iceberg_tables.content(home, f"db.{table}"))


def write_copies(root: Path, home: Path, **parts: str) -> hr.Project:
    named = {"table": "copies", "query": "copies", "more": "", "former": "", **parts}
    text = PIPELINE.format(catalog=repr(iceberg_tables.properties(home)), **named)
    (root / "pipeline.py").write_text(text)
    return hr.load(root)


def test_a_table_of_iceberg_is_taken_over_renamed_and_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    root, home = tmp_path / "p", tmp_path / "lake"
    begin(root)
    project = write_copies(root, home)
    iceberg_tables.table(home, "db.copies", COLUMNS)
    iceberg_tables.add(home, "db.other", [{"name": "a"}], pa.schema([("name", pa.string())]))
    checkpoint = root / "former/copies"

    def append(batch: DataFrame, number: int) -> None:
        """What Iceberg's own streaming sink leaves: a snapshot with the checkpoint and the batch."""
        properties: dict[str, Any] = {"spark.sql.streaming.queryId": Checkpoint(checkpoint).id}
        properties["spark.sql.streaming.epochId"] = str(number)
        made = pa.Table.from_pylist([row.asDict() for row in batch.collect()], schema=COLUMNS)
        iceberg_tables.table(home, "db.copies").append(made, snapshot_properties=properties)

    def job() -> None:
        with apply_settings(spark, PLAIN):
            writer = stream(spark, root, "events").select("name", "amount").writeStream.foreachBatch(append)
            writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    job()
    forget_commit(checkpoint)
    with require_unchanged(checkpoint):
        with pytest.raises(HeadraceError, match=r"HR596.*is not there"):
            hr.adopt(project, "nothing", checkpoint, spark=spark).apply()
        with pytest.raises(HeadraceError, match="HR406"):
            hr.adopt(project, "other", checkpoint, spark=spark).apply()
        # The snapshots show that the batch without a commit is in.
        done = hr.adopt(project, "copies", checkpoint, spark=spark).apply()
        assert (done.next_batch, done.plan.planned, [held.count for held in done.plan.result]) == (2, 1, [4])
    assert hr.verify(project, "copies", spark=spark).state == "equal"
    project = write_copies(
        root, home, query="kept", table="kept", more=', renamed_from="db.copies"', former=', renamed_from="copies"'
    )
    land_more(root)
    result = hr.run(project, ["kept"], trigger=hr.available_now, spark=spark)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert len(rows(home, "kept")) == 6
    assert hr.verify(project, "kept", spark=spark).state == "equal"
    assert hr.rebuild(project, "kept", spark=spark).apply().done == "swapped"
    land(root, "events", 3, ("z", "11:00", 2))
    assert hr.run(project, ["kept"], trigger=hr.available_now, spark=spark).exit_code == 0
    assert rows(home, "kept")[-1] == ("z", 2)
    assert hr.verify(project, "kept", spark=spark).state == "equal"
    with pytest.raises(HeadraceError, match="HR580"):
        hr.adopt(project, "kept", checkpoint, spark=spark).apply()
