"""A job of plain PySpark that reads topics is adopted, and takes each message once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.spark.jvm.session_conf import apply_settings
from tests.changes.former_jobs import PLAIN, require_unchanged, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers import Topics

pytestmark = [pytest.mark.services, pytest.mark.connectors]

PIPELINE = """
import headrace as hr

def topic(name):
    return hr.source.kafka({url!r}, subscribe=name, value="text", keep=["partition"])

clicks, views, others = topic({clicks!r}), topic({views!r}), topic({others!r})

@hr.query(sink=hr.sink.sqlite("out.db", table="seen"))
def seen(views, clicks):
    return views.union(clicks).selectExpr("value", "partition")

@hr.query(sink=hr.sink.sqlite("out.db", table="more"))
def more(views, others):
    return views.union(others).selectExpr("value", "partition")
"""


def test_a_job_over_two_topics_continues(kafka: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topics = {name: kafka.make(2) for name in ("clicks", "views", "others")}
    root = tmp_path / "p"
    root.mkdir()
    (root / "headrace.yml").write_text("name: former\n")
    (root / "pipeline.py").write_text(PIPELINE.format(url=kafka.url, **topics))
    kafka.send(topics["clicks"], "c1", "c2")
    kafka.send(topics["views"], "v1")
    with closing(sqlite3.connect(root / "out.db")) as database, database:
        database.execute("CREATE TABLE seen (value TEXT, partition INTEGER)")

    def read(name: str) -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.url)
        reader = reader.option("subscribe", topics[name]).option("startingOffsets", "earliest")
        return reader.load().selectExpr("CAST(value AS STRING) AS value", "partition")

    def write(batch: DataFrame, number: int) -> None:
        with closing(sqlite3.connect(root / "out.db")) as database, database:
            database.executemany("INSERT INTO seen VALUES (?, ?)", [tuple(row) for row in batch.collect()])

    checkpoint = root / "former"
    with apply_settings(spark, PLAIN):
        writer = read("clicks").union(read("views")).writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    project = hr.load(root)
    with require_unchanged(checkpoint):
        with pytest.raises(HeadraceError, match=f"topic '{topics['clicks']}'"):
            hr.adopt(project, "more", checkpoint, spark=spark).apply()
        done = hr.adopt(project, "seen", checkpoint, spark=spark).apply()
    assert {source.name: source.position for source in done.plan.sources} == {"clicks": "0", "views": "1"}
    kafka.send(topics["clicks"], "c3")
    kafka.send(topics["views"], "v2")
    result = hr.run(project, ["seen"], trigger=hr.available_now, spark=spark)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert sorted(value for value, _ in table(root, "seen")) == ["c1", "c2", "c3", "v1", "v2"]
    assert hr.verify(project, "seen", spark=spark).state == "equal"
