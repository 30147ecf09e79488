"""Queries over batches of rows, through crashes and restarts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import CheckFailed, HeadraceError, ProjectError
from headrace.testing import Clock, Crash, CrashBeforeCommit, Pause, Refresh, Restart, Watermark, timeline
from tests.docs.blocks import ROOT
from tests.rounds import as_long, rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
EXAMPLES = ROOT / "examples"
HOURS = """
import headrace as hr
from pyspark.sql import DataFrame, Row, functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

events = hr.source.files("landing", format="json", schema="who STRING, time TIMESTAMP, price DOUBLE",
                         watermark=("time", "10 minutes"))

@hr.query(sink=hr.sink.console(), mode="append", trigger=hr.available_now)
def hours(events: DataFrame) -> DataFrame:
    counts = events.groupBy(F.window("time", "1 hour").alias("hour")).agg(F.count("*").alias("count"))
    return counts.select(F.col("hour.start").alias("hour"), "count")

@hr.query(sink=hr.sink.console(), mode="append")
def wrong(events: DataFrame) -> DataFrame:
    return events.select("who", F.rand().alias("chance"))

@hr.query(sink=hr.sink.console(), mode="append")
def failing(events: DataFrame) -> DataFrame:
    return events.select(F.raise_error(F.lit("no such price")).alias("price"))

@hr.query(sink=hr.sink.sqlite("result.db", table="pairs"), mode="append")
def pairs(events: DataFrame) -> DataFrame:
    later = events.select(F.col("who").alias("other"), F.col("time").alias("at"))
    followed = F.expr("other = who AND at > time AND at < time + INTERVAL 1 HOUR")
    return events.join(later, followed).select("who", "time", "at")

class Alarm(StatefulProcessor):
    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 300_000)
        yield from ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(who=key[0], at=timerValues.getCurrentProcessingTimeInMs() // 60_000 % 1440)

    def close(self):
        pass

@hr.query(sink=hr.sink.console(), mode="append")
def alarms(events: DataFrame) -> DataFrame:
    return events.groupBy("who").transformWithState(Alarm(), "who STRING, at LONG", "append", "ProcessingTime")

@hr.table
def rates(spark) -> DataFrame:
    return spark.createDataFrame([("a", 1)], "who STRING, rate INT")

@hr.broadcast
def names(rates):
    return {row.who: "declared" for row in rates.collect()}

@hr.query(sink=hr.sink.console(), mode="append")
def costs(events: DataFrame, rates: DataFrame, names) -> DataFrame:
    named = F.udf(lambda who: names.value.get(who))
    return events.join(rates, "who").select(named("who").alias("name"), (F.col("price") * F.col("rate")).alias("cost"))
"""


@pytest.fixture
def hours(tmp_path: Path) -> hr.Project:
    (tmp_path / "headrace.yml").write_text("name: hours\n")
    (tmp_path / "pipeline.py").write_text(HOURS)
    return hr.load(tmp_path)


def test_a_result_does_not_depend_on_crashes(spark: SparkSession) -> None:
    run = timeline(
        hr.load(EXAMPLES / "mobile-monitoring"),
        "counts_in_postgres",
        spark=spark,
        events=[
            [("phone1", "01:10", "open"), ("phone2", "01:58", "open")],
            Crash(),
            [("phone3", "01:58", "open"), ("phone3", "02:01", "close")],
            CrashBeforeCommit(),
            [("phone4", "01:59", "open"), ("phone4", "02:02", "close")],
            Restart(),
            [("phone5", "02:03", "close"), ("phone5", "03:01", "open")],
        ],
    )
    assert [run.after(batch)["open", "01:00"].count for batch in (1, 2, 3)] == [2, 3, 4]
    assert run.final == run.batch == [("open", "01:00", 4), ("close", "02:00", 3), ("open", "03:00", 1)]
    assert run.late == []
    assert run.state_rows == 3
    assert run.watermark is None


def test_late_rows_are_known_and_open_groups_are_left_out(spark: SparkSession, hours: hr.Project) -> None:
    run = timeline(
        hours,
        "hours",
        spark=spark,
        events=[[("a", "12:05", 1.5), ("b", "12:50")], [("c", "13:15")], [("d", "12:01", 2.5), {"time": "14:30"}]],
    )
    assert run.after(1) == []
    assert run.after(2) == [("12:00", 2)]
    assert run.final == run.batch == [("12:00", 2), ("13:00", 1)]
    assert run.late == [("d", "12:01", 2.5)]
    assert run.watermark == datetime(2024, 1, 1, 14, 20)


def test_the_watermark_moves_without_a_row(spark: SparkSession, hours: hr.Project) -> None:
    run = timeline(hours, "hours", spark=spark, events=[[("a", "12:05")], Watermark("13:00"), [("b", "12:59")]])
    assert run.final == [("12:00", 1)]
    assert run.late == [("b", "12:59", None)]


@pytest.mark.parametrize("more", rounds([[], [Crash()]]), ids=["alone", "with a crash"])
def test_batches_of_several_inputs_come_together(spark: SparkSession, more: list[Crash]) -> None:
    run = timeline(
        hr.load(EXAMPLES / "outer-join"),
        "shown",
        spark=spark,
        impressions=[[("ad1", "12:00"), ("ad2", "12:00")], *more, [("ad3", "18:00")]],
        clicks=[[("ad1", "12:30")], [("ad3", "19:30")]],
    )
    assert run.after(1) == [("ad1", "12:00", "12:30")]
    assert ("ad2", "12:00", None) in [(row.ad, f"{row.shown:%H:%M}", row.clicked) for row in run.final]


# The query of the test that keeps the real sink, too.
@pytest.mark.long
def test_a_stream_that_is_joined_with_itself(spark: SparkSession, hours: hr.Project) -> None:
    run = timeline(hours, "pairs", spark=spark, events=[[("a", "12:00")], [("a", "12:30"), ("b", "12:40")]])
    assert run.final == [("a", "12:00", "12:30")]


@pytest.mark.parametrize(
    ("example", "query", "source", "batches"),
    [
        as_long(
            (
                "deduplication",
                "events_once",
                "events",
                [[("a", "12:00")], [("a", "12:00"), ("b", "12:01")], [("c", "15:00")]],
            )
        ),
        as_long(
            (
                "session-windows",
                "sessions",
                "visits",
                [[("12:00:00", "user1")], [("12:00:04", "user1")], [("13:00", "user2")]],
            )
        ),
        as_long(("windowed-counts", "counts", "lines", [[("12:01", "cat dog")], [("12:07", "cat")]])),
        ("word-count", "word_counts", "lines", [["cat dog"], ["cat"]]),
        ("own-source", "hits", "lines", [["GET /home", "GET /shop"], ["GET /home"]]),
    ],
    ids=["dedup", "session", "sql", "complete", "a source of its own"],
)
def test_examples_give_the_batch_answer(
    spark: SparkSession, example: str, query: str, source: str, batches: list[list[object]]
) -> None:
    run = timeline(hr.load(EXAMPLES / example), query, spark=spark, given={source: batches})
    assert run.final == run.batch
    assert len(run.final) >= 1


def test_a_state_function_is_run_without_a_batch_answer(spark: SparkSession) -> None:
    readings = [[("a", "12:00"), ("b", "12:00")], [("a", "12:14")], [("a", "12:11")], [("c", "12:28")]]
    run = timeline(hr.load(EXAMPLES / "transform-with-state"), "sensors", spark=spark, readings=readings)
    assert run.after(1)["a"].readings == 1
    assert {row.sensor: row.status for row in run.final} == {"a": "active", "b": "silent", "c": "active"}
    with pytest.raises(CheckFailed, match="HR722"):
        _ = run.batch


def test_what_a_state_function_means_as_a_batch_is_said_by_the_test(spark: SparkSession) -> None:
    project = hr.load(EXAMPLES / "transform-with-state")
    counted = "SELECT sensor, count({}) AS readings FROM readings GROUP BY sensor"
    readings = [[("a", "12:00"), ("b", "12:00")], [("a", "12:14")]]
    run = timeline(project, "sensors", spark=spark, batch=counted.format("*"), readings=readings)
    assert run.batch == [("a", 2), ("b", 1)]
    together = [[row for batch in readings for row in batch]]
    with pytest.raises(AssertionError, match=r"(?s)not the batch answer.*- Row\(sensor='a', readings=1\)"):
        timeline(project, "sensors", spark=spark, batch=counted.format("DISTINCT sensor"), readings=together)


def test_timers_of_processing_time_go_by_the_clock_of_the_timeline(spark: SparkSession, hours: hr.Project) -> None:
    run = timeline(hours, "alarms", spark=spark, events=[[("a", "12:00")], Clock("+4 min"), Clock("1 minute")])
    assert run.final == [("a", 5)]


def test_a_query_with_timers_of_processing_time_ends_without_a_clock(spark: SparkSession, hours: hr.Project) -> None:
    run = timeline(hours, "alarms", spark=spark, events=[[("a", "12:00")], Pause()])
    assert run.final == []


def test_tables_change_between_batches(spark: SparkSession, hours: hr.Project) -> None:
    batch = [("a", "12:00", 2.0)]
    first, then = Refresh(rates=[{"who": "a", "rate": "7"}]), Refresh(rates=[("a", 3)], names={"a": "given"})
    run = timeline(hours, "costs", spark=spark, events=[first, batch, then, Crash(), batch, Refresh(rates=[]), batch])
    assert run.final == run.batch == [("declared", 14.0), ("given", 6.0)]
    with pytest.raises(ProjectError, match=r"HR721.*reads no table 'rate'"):
        timeline(hours, "costs", spark=spark, events=[batch, Refresh(rate=[])])


def test_a_query_that_reads_the_table_of_another_one(spark: SparkSession) -> None:
    kept = [[("roof", 31), ("roof", 30)], [("cellar", 40)]]
    run = timeline(hr.load(EXAMPLES / "streaming-tables"), "high", spark=spark, kept=kept)
    assert run.final == run.batch == [("cellar", 40), ("roof", 31)]


def test_lines_that_break_the_schema_are_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    files = '{path: landing, format: json, schema: "who STRING, price INT", on_bad_row: quarantine}'
    (tmp_path / "headrace.yml").write_text(
        f"name: prices\nsources: {{prices: {{files: {files}}}}}\n"
        "queries: {dear: {select: SELECT who FROM prices WHERE price > 5, sink: {console: {}}}}\n"
    )
    lines = ['{"who": "a", "price": 7}', '{"who": "b", "price": "much"}']
    run = timeline(hr.load(tmp_path), "dear", spark=spark, prices=[lines])
    assert run.final == [("a",)]
    assert [line for line in run.quarantined if "much" in line] == run.quarantined != []


def test_the_real_sink_is_kept_when_asked_for(spark: SparkSession, tmp_path: Path, hours: hr.Project) -> None:
    run = timeline(hours, "pairs", spark=spark, sink=True, events=[[("a", "12:00")], Crash(), [("a", "12:30")]])
    assert run.after(1) == []
    assert run.final == [("a", "12:00", "12:30")]
    assert (tmp_path / "result.db").exists()


def test_a_result_that_is_not_the_batch_answer_fails(spark: SparkSession, hours: hr.Project) -> None:
    with pytest.raises(AssertionError, match=r"(?s)not the batch answer.*- Row\(who='a', chance=.*\+ Row\(who='a'"):
        timeline(hours, "wrong", spark=spark, events=[[("a", "12:00")]])
    run = timeline(hours, "wrong", spark=spark, batch=False, events=[[("a", "12:00")]])
    assert len(run.final) == 1


def test_a_query_that_fails_says_why(spark: SparkSession, hours: hr.Project) -> None:
    with pytest.raises(HeadraceError, match="no such price"):
        timeline(hours, "failing", spark=spark, events=[[("a", "12:00")]])


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([Crash(), [("a", "12:00")]], "stands before the first batch"),
        ([[], Crash()], "cannot crash in a batch without rows"),
        ([], "has no batch"),
        ([[("a", "12:00")], Clock("soon")], "'soon' is not a length of time"),
    ],
    ids=["first", "empty", "none", "clock"],
)
def test_a_timeline_that_cannot_be_run_is_refused(
    spark: SparkSession, hours: hr.Project, events: list[object], message: str
) -> None:
    with pytest.raises(ProjectError, match=f"HR721.*{message}"):
        timeline(hours, "hours", spark=spark, events=events)
