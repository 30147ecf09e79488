"""A rebuild over a topic, whose past may be gone, into a table of Delta Lake."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

import headrace as hr
from headrace.errors import HeadraceError
from tests.servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]
PROJECT = """
import headrace as hr
from pyspark.sql import functions as F

sales = hr.source.kafka("{servers}", subscribe="{topic}", value="json", schema="name STRING, amount INT",
                        starting_offsets="latest")

@hr.query(sink=hr.sink.delta("totals", key=["name"]), mode="update")
def totals(sales):
    return sales.groupBy("name").agg(F.{function}("amount").cast("long").alias("total"))
"""


@pytest.mark.long
def test_a_query_that_began_at_the_latest_messages_is_rebuilt_from_there(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic, root = kafka.make(partitions=2), tmp_path / "p"
    root.mkdir()
    (root / "headrace.yml").write_text("name: p\n")

    def declared(function: str) -> hr.Project:
        (root / "pipeline.py").write_text(PROJECT.format(servers=kafka.url, topic=topic, function=function))
        return hr.load(root)

    def sell(*amounts: int) -> None:
        for amount in amounts:
            kafka.send(topic, json.dumps({"name": "a", "amount": amount}), partition=0)

    def run(project: hr.Project) -> list[tuple[str, int]]:
        result = hr.run(project, trigger=hr.available_now, spark=spark)
        assert [outcome.finding for outcome in result.outcomes if outcome.finding is not None] == []
        return [tuple(row) for row in spark.read.format("delta").load(str(root / "totals")).collect()]

    project = declared("sum")
    sell(100, 200)
    run(project)
    sell(1, 2, 3)
    assert run(project) == [("a", 6)]
    project = declared("max")
    sell(2)
    done = hr.rebuild(project, "totals", spark=spark).apply()
    assert (done.done, done.report and done.report.verdict) == ("swapped", "equal")
    sell(4)
    assert run(project) == [("a", 4)]
    assert hr.verify(project, "totals", spark=spark).state == "equal"
    assert hr.rebuild(project, "totals", spark=spark).discard().generation == 2
    assert sorted(path.name for path in root.iterdir() if "totals" in path.name) == ["totals"]
    admin = kafka.server.admin()
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(10)
    with pytest.raises(HeadraceError, match=r"HR574.*were read from offset 2 on, and the first one there is 4"):
        hr.rebuild(project, "totals", spark=spark).apply()
    # From a time on: of the partitions that hold nothing so new, what is to come.
    since = datetime.now(timezone.utc)
    sell(3)
    done = hr.rebuild(declared("sum"), "totals", spark=spark, since=since).apply()
    assert (done.done, run(declared("sum"))) == ("swapped", [("a", 3)])
    assert hr.rebuild(declared("sum"), "totals", spark=spark).undo().generation == 2
