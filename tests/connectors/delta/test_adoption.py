"""A Delta table that a job of plain PySpark has written becomes a query's result, with the job's checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.spark.jvm.session_conf import apply_settings
from headrace.testing.conformance import forget_commit
from tests.changes.former_jobs import PLAIN, begin, land_more, require_unchanged, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]

PIPELINE = """
import headrace as hr
from pyspark.sql import functions as F

events = hr.source.files("events", format="json", schema="name STRING, at TIMESTAMP, amount INT")

@hr.query(sink=hr.sink.delta("copies"))
def copies(events):
    return events.select("name", "amount")

@hr.query(sink=hr.sink.delta("totals", key=["name"]), mode="complete")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.delta("nothing"))
def nothing(events):
    return events.select("name", "amount")
"""


def rows(spark: SparkSession, place: Path) -> list[tuple[object, ...]]:
    return sorted(map(tuple, spark.read.format("delta").load(str(place)).collect()), key=repr)


@pytest.mark.long
def test_tables_of_delta_are_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "p"
    begin(root)
    (root / "pipeline.py").write_text(PIPELINE)

    def replace(batch: DataFrame, number: int) -> None:
        batch.write.format("delta").mode("overwrite").save(str(root / "totals"))

    with apply_settings(spark, PLAIN):
        events = stream(spark, root, "events")
        native = events.select("name", "amount").writeStream.format("delta").trigger(availableNow=True)
        native.option("checkpointLocation", str(root / "former/copies")).start(str(root / "copies")).awaitTermination()
        summed = events.groupBy("name").sum("amount").withColumnRenamed("sum(amount)", "total")
        own = summed.writeStream.outputMode("complete").foreachBatch(replace).trigger(availableNow=True)
        own.option("checkpointLocation", str(root / "former/totals")).start().awaitTermination()
    project = hr.load(root)
    for name in ("copies", "totals"):
        forget_commit(root / "former" / name)
    with require_unchanged(root / "former"):
        with pytest.raises(HeadraceError, match="HR596"):
            hr.adopt(project, "nothing", root / "former/copies", spark=spark).apply()
        # Delta's own sink enters each batch, and a function does not.
        done = hr.adopt(project, "copies", root / "former/copies", spark=spark).apply()
        assert (done.next_batch, done.plan.planned, [held.count for held in done.plan.result]) == (2, 1, [4])
        with pytest.raises(HeadraceError, match="HR591"):
            hr.adopt(project, "totals", root / "former/totals", spark=spark).apply()
        hr.adopt(project, "totals", root / "former/totals", planned="written", spark=spark).apply()
    assert hr.verify(project, "copies", spark=spark).state == "equal"
    land_more(root)
    result = hr.run(project, ["copies", "totals"], trigger=hr.available_now, spark=spark)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert rows(spark, root / "totals") == [("a", 7), ("b", 14), ("c", 3)]
    assert len(rows(spark, root / "copies")) == 6
    assert {hr.verify(project, name, spark=spark).state for name in ("copies", "totals")} == {"equal"}
    with pytest.raises(HeadraceError, match="HR580"):
        hr.adopt(project, "copies", root / "former/copies", spark=spark).apply()


def test_rows_that_share_a_key_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    from headrace.connectors.delta.sink import DeltaSink
    from headrace.contract import SinkContext

    frame = spark.createDataFrame([("a", 1), ("a", 2)], "name STRING, total INT")
    frame.write.format("delta").save(str(tmp_path / "t"))
    context = SinkContext(query="q", generation=1, mode="update", checkpoint=tmp_path / "c")
    with pytest.raises(HeadraceError, match="2 rows with the key name = 'a'"):
        DeltaSink(path=str(tmp_path / "t"), key=["name"]).adoption.foreign_rows(frame, context)
