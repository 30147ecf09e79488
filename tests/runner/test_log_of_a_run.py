"""One log of a run has what Headrace, Spark and the user's code say, each with the query and the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load
from headrace.contract import Observer
from headrace.runner.stop import StopRequest
from headrace.runner.supervise import run

from .projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.contract import BatchRecord

pytestmark = pytest.mark.spark

QUERY = """
import logging

@F.udf("int")
def same(amount):
    print(f"udf has {amount}")
    logging.getLogger("mine").warning("udf of %s", amount)
    return amount

def write(frame, batch):
    frame.collect()
    print(f"function has {batch}")
    logging.getLogger("mine").warning("function of %s", batch)
    # As the JVM's own code does in the query's thread and in that of a task.
    frame.sparkSession._jvm.org.slf4j.LoggerFactory.getLogger("org.apache.spark.Reader").warn(f"spark has {batch}")

@hr.query(sink=hr.sink.foreach_batch(write), trigger=hr.every("1 millisecond"))
def totals(events):
    print("query is built")
    logging.getLogger("mine").warning("query of mine")
    return events.select(same("amount").alias("amount"))
"""


class Until(Observer):
    """Stops the run after a batch."""

    def __init__(self, batch: int) -> None:
        self.batch, self.stop = batch, StopRequest()

    def progressed(self, record: BatchRecord) -> None:
        if record.batch == self.batch:
            self.stop.ask()


def test_prints_logging_and_warnings_of_spark_are_in_one_log_with_query_and_batch(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", QUERY, batches=[[{"name": "a", "amount": 7}], [{"name": "a", "amount": 8}]])
    (root / "headrace.yml").write_text("name: p\nlog: {format: json}\n")
    until = Until(1)
    assert run(load(root), spark=spark, reporter=until, stop=until.stop).exit_code == 0
    log = [json.loads(line) for line in (root / ".headrace" / "logs" / "headrace.log").read_text().splitlines()]
    entries = {(line["level"], line["query"], line["batch"], line["message"]) for line in log}
    assert {
        ("info", "totals", None, "query is built"),
        ("warning", "totals", None, "mine: query of mine"),
        *(("info", "totals", batch, f"function has {batch}") for batch in (0, 1)),
        *(("warning", "totals", batch, f"mine: function of {batch}") for batch in (0, 1)),
        *(("info", "totals", batch, f"udf has {batch + 7}") for batch in (0, 1)),
        *(("warning", "totals", batch, f"mine: udf of {batch + 7}") for batch in (0, 1)),
        *(("warning", "totals", batch, f"Reader: spark has {batch}") for batch in (0, 1)),
    } <= entries
    behind = [line for line in log if line["message"].startswith("ProcessingTimeExecutor: Current batch is falling")]
    assert behind
    assert {line["query"] for line in behind} == {"totals"}
    assert all(line["time"].endswith("Z") and line["code"] is None for line in log if line["level"] != "error")
