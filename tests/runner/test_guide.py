"""What the Structured Streaming guide and the post that introduced it promise, on small projects."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run, verify
from headrace.contract import BatchRecord
from headrace.frames.plan_builder import build
from headrace.model import Once
from headrace.runner.stop import StopRequest

from .projects import land, rows, write_project
from .test_run import FRUIT, TOTALS, Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ACTIONS = """
actions = hr.source.files("landing", format="json", max_files_per_trigger=1, schema="action STRING, time TIMESTAMP",
                          watermark=("time", "2 hours"))

@hr.query(sink=hr.sink.sqlite("out.db", table="counts", key=["action", "hour"]), mode="update",
          trigger=hr.available_now)
def counts(actions):
    return (actions.groupBy("action", F.window("time", "1 hour")).count()
                   .select("action", F.col("window.start").alias("hour"), "count"))
"""


def event(action: str, time: str) -> dict[str, str]:
    return {"action": action, "time": f"2026-03-01T{time}:00Z"}


@pytest.mark.capability("MODEL-03")
def test_an_open_of_1_58_that_arrives_at_2_02_updates_the_row_of_1_00(tmp_path: Path, spark: SparkSession) -> None:
    before = [event("open", "01:10"), event("close", "01:20")]
    root = write_project(tmp_path / "p", ACTIONS, batches=[before])
    select = "SELECT action, substr(hour, 12, 5), count FROM counts ORDER BY 1, 2"
    assert run(load(root), spark=spark).exit_code == 0
    assert rows(root / "out.db", select) == [("close", "01:00", 1), ("open", "01:00", 1)]
    land(root, 1, [event("close", "02:01"), event("open", "01:58")])
    assert run(load(root), spark=spark).exit_code == 0
    assert rows(root / "out.db", select) == [("close", "01:00", 1), ("close", "02:00", 1), ("open", "01:00", 2)]
    assert verify(load(root), "counts", spark=spark).state == "equal"


@pytest.mark.capability("OP-WM-06")
def test_a_watermark_does_nothing_to_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(
        tmp_path / "p", ACTIONS, batches=[[event("open", time)] for time in ("23:00", "23:30", "01:00")]
    )
    project = load(root)
    batch = spark.read.schema("action STRING, time TIMESTAMP").json(str(root / "landing"))
    answer = build(project, project.queries["counts"].transform, spark, lambda source: batch)
    assert not answer.isStreaming
    assert answer.count() == 2
    run(project, spark=spark)
    assert len(rows(root / "out.db", "SELECT * FROM counts")) == 1
    assert verify(project, "counts", spark=spark).rows_late == 1


@pytest.mark.capability("TRIG-01")
def test_by_default_a_batch_follows_as_soon_as_the_last_is_done(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS.replace("hr.available_now", "None"), batches=FRUIT)
    stop, recorder = StopRequest(), Recorder()

    def reached(boundary: str, batch: int) -> None:
        if (boundary, batch) == ("after-transaction", 1):
            stop.ask()

    result = run(load(root), spark=spark, stop=stop, reached=reached, reporter=recorder)
    assert [(end.state, end.batches) for end in result.outcomes] == [("stopped", 2)]
    first, second = recorder.all(BatchRecord)
    assert second.at - first.at < timedelta(milliseconds=first.duration_ms, seconds=15)


# Each longer than the one before: on a machine with other work the clock is kept to within a third of an interval.
INTERVALS = (3, 6, 30)


@pytest.mark.capability("TRIG-02")
def test_at_an_interval_batches_keep_the_three_rules_of_the_guide(tmp_path: Path, spark: SparkSession) -> None:
    """Wait for the interval's end; after a batch that took longer, follow at once; without data, make none."""
    attempts = (not_in_time(tmp_path / f"p{seconds}", spark, seconds) for seconds in INTERVALS)
    late = list(takewhile(bool, attempts))
    assert len(late) < len(INTERVALS), late


def not_in_time(root: Path, spark: SparkSession, seconds: int) -> list[str]:
    """Let a query make three batches, the second longer than the interval; return what was not in time."""
    every = f"hr.every('{seconds} seconds')"
    write_project(root, TOTALS.replace("hr.available_now", every), batches=FRUIT[:1])
    stop, made = StopRequest(), []

    def reached(boundary: str, batch: int) -> None:
        if boundary != "before-transaction":
            return
        made.append(batch)
        if batch == 0:
            land(root, 1, FRUIT[1])
        if batch == 1:
            land(root, 2, FRUIT[1])
            time.sleep(seconds + 0.5)

    class Watching(Recorder):
        def progressed(self, record: BatchRecord) -> None:
            super().progressed(record)
            if record.batch == 2:
                time.sleep(2 * seconds + 0.5)
                stop.ask()

    recorder = Watching()
    run(load(root), spark=spark, stop=stop, reached=reached, reporter=recorder)
    first, slow, after = recorder.all(BatchRecord)
    assert made == [0, 1, 2]
    assert slow.duration_ms > seconds * 1000
    assert after.at >= slow.at + timedelta(milliseconds=slow.duration_ms - 100)
    late = []
    if first.duration_ms > 1000 * (seconds - 0.5):
        late.append(f"the first batch took {first.duration_ms} ms")
    elif slow.at.timestamp() % seconds > seconds / 3:
        late.append(f"the second batch began at {slow.at}")
    if after.at - slow.at > timedelta(milliseconds=slow.duration_ms, seconds=seconds / 3):
        late.append(f"the third batch began at {after.at}, the second at {slow.at} with {slow.duration_ms} ms")
    return late


@pytest.mark.capability("TRIG-03")
def test_once_takes_everything_in_one_batch_and_is_called_deprecated(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS.replace("hr.available_now", "hr.once"), batches=FRUIT)
    project = load(root)
    assert project.queries["totals"].trigger == Once()
    assert "HR257" in {finding.code for finding in check(project, spark=False).findings}
    result = run(project, spark=spark)
    assert [(end.state, end.batches, end.rows) for end in result.outcomes] == [("finished", 1, 3)]


@pytest.mark.capability("TUNE-02")
def test_a_backlog_is_caught_up_without_an_oversized_batch(tmp_path: Path, spark: SparkSession) -> None:
    text = TOTALS.replace("events)", "limited)").replace("events.", "limited.")
    source = (
        'limited = hr.source.files("landing", format="json", max_files_per_trigger=2, schema="name STRING, amount INT")'
    )
    root = write_project(tmp_path / "p", f"{source}\n{text}", batches=[FRUIT[0]] * 5)
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert [record.rows for record in recorder.all(BatchRecord)] == [4, 4, 2]
    assert rows(root / "out.db", "SELECT name, amount FROM totals ORDER BY 1") == [("apple", 5), ("pear", 10)]


@pytest.mark.capability("MANAGE-03")
def test_each_query_has_a_pool_of_its_own_under_the_fair_scheduler(tmp_path: Path, spark: SparkSession) -> None:
    others = TOTALS.replace("def totals", "def others").replace('"totals"', '"others"').replace("out.db", "two.db")
    root = write_project(tmp_path / "p", TOTALS + others, batches=[*FRUIT, *FRUIT])
    context, pools = spark.sparkContext, []

    def reached(boundary: str, batch: int) -> None:
        if boundary == "inside-transaction":
            name = str(context.getLocalProperty("spark.scheduler.pool"))
            pools.append((str(context.getLocalProperty("spark.jobGroup.id")), batch, int(name.removeprefix("turn "))))

    assert run(load(root), spark=spark, reached=reached).exit_code == 0
    queries = {query for query, _, _ in pools}
    assert len(queries) == 2
    for query in queries:
        own = [(batch, number) for name, batch, number in pools if name == query]
        assert own == sorted(own)
        assert len({number for _, number in own}) > 1, "a batch comes after those that waited meanwhile"
    assert len({(query, number) for query, _, number in pools}) == len({number for _, _, number in pools})
    left = context._jsc.sc().getAllPools()  # type: ignore[attr-defined]
    names = [str(left.apply(at).name()) for at in range(left.size())]
    assert not {f"turn {number:04d}" for _, _, number in pools} & set(names)
    assert spark.conf.get("spark.scheduler.mode") == "FAIR"


def test_a_pool_that_the_user_has_chosen_stays(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT[:1])
    context, pools = spark.sparkContext, set()
    context.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        result = run(
            load(root),
            spark=spark,
            reached=lambda _boundary, _batch: pools.add(context.getLocalProperty("spark.scheduler.pool")),
        )
        assert result.exit_code == 0
        assert context.getLocalProperty("spark.scheduler.pool") == "mine"
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    assert pools == {"mine"}
