"""A project as users write it; nothing in it is an error for a type checker."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from typing_extensions import assert_type

import headrace as hr
from headrace.errors import HeadraceError
from headrace.results import RunResult

events = hr.source.files(
    "landing/events",
    format="json",
    schema="phone_id STRING, time TIMESTAMP, action STRING",
    watermark=("time", "2 hours"),
    max_files_per_trigger=10,
    options={"multiLine": True, "mode": "FAILFAST"},
)
orders = hr.source.kafka("localhost:9092", subscribe=["orders"], value="json", schema="id BIGINT", keep=["offset"])
ticks = hr.source.ticks(every=5)  # of another distribution
unused = hr.counter()


@hr.table(refresh=hr.every("10 minutes"))
def phones(spark: SparkSession) -> DataFrame:
    return spark.read.parquet("phones")


@hr.table
def models(spark: SparkSession) -> DataFrame:
    return spark.read.parquet("models")


@hr.broadcast
def names() -> dict[str, str]:
    return {"open": "opened"}


@hr.view
def opened(events: DataFrame) -> DataFrame:
    return events.where("action = 'open'")


@hr.query(
    sink=hr.sink.postgres("${DATABASE_URL}", table="action_counts", key=["action", "hour"], on_bad_row="quarantine"),
    mode="update",
    trigger=hr.every("5 seconds"),
    restart={"limit": 8, "pause": "1 second"},
)
def action_counts(opened: DataFrame, phones: DataFrame) -> DataFrame:
    """How many actions of each kind happened in each hour."""
    hour = F.window("time", "1 hour")
    return opened.join(phones, "phone_id").groupBy("action", hour).count()


@hr.query(sink=hr.sink.kafka("localhost:9092", topic="out", delivery_guarantee="exactly-once"), restart="never")
def out(orders: DataFrame) -> DataFrame:
    return orders


def started(spark: SparkSession, frame: DataFrame) -> StreamingQuery:
    """What was decorated is still the function, and more."""
    assert_type(action_counts(frame, frame), DataFrame)
    assert_type(opened(events=frame), DataFrame)
    assert_type(names(), dict[str, str])
    assert_type(phones.name, str)
    return action_counts.start(spark, trigger="available-now", root=".")


def main() -> RunResult:
    project = hr.load("phones", target="prod")
    for finding in hr.check(project, spark=False).findings:
        print(finding.code, finding.what, finding.fix)
    try:
        result = hr.run(project, ["action_counts"], trigger=hr.available_now)
    except HeadraceError as error:
        raise SystemExit(str(error)) from error
    for verdict in [hr.verify(project, name) for name in project.queries]:
        print(verdict.state)
    return result
