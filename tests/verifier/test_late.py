"""Rows that Spark drops as late are found exactly, whatever operator drops them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.verifier.late_rows import find_late_rows
from tests.rounds import only_usual
from tests.verifier.kit import scene, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# The watermark passes 12:50 with the first file and holds for the rows of the third.
LATE_LAST = [
    [("12:00", "a", 1), ("13:00", "a", 1)],
    [("13:00", "b", 1)],
    [("12:05", "a", 1), ("12:45", "a", 1), ("12:50", "c", 1), ("12:55", "a", 1), ("13:01", "b", 1), (None, "n", 1)],
]


def windows(*sizes: str) -> Callable[..., DataFrame]:
    def counted(events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        counts = events.groupBy(F.window("time", *sizes), "who").count()
        return counts.select("who", F.col("window.start").alias("start"), "count")

    return counted


def by_time(events: DataFrame) -> DataFrame:
    return events.groupBy("time", "who").count()


def sessions(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    counts = events.groupBy(F.session_window("time", "5 minutes"), "who").count()
    return counts.select("who", F.col("session_window.start").alias("start"), "count")


def distinct(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["who", "time"])


def distinct_within(events: DataFrame) -> DataFrame:
    return events.dropDuplicatesWithinWatermark(["who", "time"])


def distinct_pruned(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["who"]).select("who")


def distinct_counted(events: DataFrame) -> DataFrame:
    return windows("10 minutes")(events.dropDuplicates(["who", "time"]))


def unite(events: DataFrame, others: DataFrame) -> DataFrame:
    return windows("10 minutes")(events.unionByName(others))


def by_window_unseen(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy(F.window("time", "10 minutes"), "who").count().select("who", "count")


def own_watermark(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    moved = events.withColumn("moment", F.col("time") + F.expr("INTERVAL 1 HOUR")).drop("time")
    return (
        moved.withWatermark("moment", "10 minutes")
        .groupBy(F.window("moment", "10 minutes"), "who")
        .count()
        .select("who", F.col("window.start").alias("start"), "count")
    )


def explode(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    doubled = events.select(F.explode(F.array("who", F.lit("z"))).alias("who"), "time")
    return windows("10 minutes")(doubled)


def chain(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    small = events.groupBy(F.window("time", "5 minutes"), "who").count()
    large = small.groupBy(F.window(F.window_time("window"), "10 minutes")).agg(F.sum("count").alias("count"))
    return large.select(F.col("window.start").alias("start"), "count")


def count_by_key(events: DataFrame) -> DataFrame:
    return events.groupBy("who").count()


KEYED = ("who", "start")
CASES: dict[str, tuple[Callable[..., Any], str, tuple[str, ...], str, int, int]] = {
    # function, mode, key, state, late rows, pending rows
    "tumbling, update": (windows("10 minutes"), "update", KEYED, "late", 2, 0),
    "tumbling, append": (windows("10 minutes"), "append", (), "late", 2, 4),
    "tumbling, complete drops nothing": (windows("10 minutes"), "complete", KEYED, "equal", 0, 0),
    "sliding, a row late for one window only": (windows("20 minutes", "10 minutes"), "update", KEYED, "late", 3, 0),
    "plain column": (by_time, "update", ("time", "who"), "late", 3, 0),
    "plain column, append": (by_time, "append", (), "late", 3, 4),
    "sessions, append": (sessions, "append", (), "late", 2, 3),
    "sessions, complete": (sessions, "complete", KEYED, "late", 2, 0),
    "duplicates with their time": (distinct, "append", (), "late", 3, 0),
    "duplicates within the watermark": (distinct_within, "append", (), "late", 3, 0),
    "duplicates whose time is pruned": (distinct_pruned, "append", (), "equal", 0, 0),
    "duplicates dropped, then counted": (distinct_counted, "append", (), "late", 3, 3),
    "the window is not in the result": (by_window_unseen, "append", (), "late", 2, 4),
    "the function's own watermark": (own_watermark, "update", KEYED, "late", 2, 0),
    "exploded rows count each": (explode, "update", KEYED, "late", 4, 0),
    "two aggregations": (chain, "append", (), "late", 2, 4),
    "no event time in the group": (count_by_key, "update", ("who",), "equal", 0, 0),
}


# The late rows of tumbling windows are listed below in update mode, and left out in append mode in test_corruptions.py;
# those of a deduplication are exported in test_export.py; that complete mode drops none is in test_lateness.py.
USUAL = ("sessions, append", "the function's own watermark", "exploded rows count each", "two aggregations")


@pytest.mark.parametrize("name", only_usual(CASES, *USUAL))
def test_what_spark_dropped_is_left_out_and_counted(name: str, spark: SparkSession, tmp_path: Path) -> None:
    function, mode, key, state, late, pending = CASES[name]
    batches = LATE_LAST
    if function is distinct_within:  # a NULL event time fails in Spark itself there
        batches = [[row for row in rows if row[0]] for rows in LATE_LAST]
    delay = None if function is own_watermark else "10 minutes"
    verdict = scene(spark, tmp_path, batches, function, mode=mode, key=key, delay=delay).verify()  # type: ignore[arg-type]
    assert (verdict.state, verdict.rows_late, verdict.rows_open) == (state, late, pending), verdict
    assert verdict.rows_read == sum(map(len, batches))
    assert len(verdict.late) == late


@pytest.mark.long
def test_the_guides_example_drops_the_donkey(spark: SparkSession, tmp_path: Path) -> None:
    # Structured Streaming guide, "Handling Late Data and Watermarking", up to the trigger at 12:20.
    batches = [
        [("12:07", "dog"), ("12:08", "owl")],
        [("12:14", "dog"), ("12:09", "cat")],
        [("12:15", "cat"), ("12:08", "dog"), ("12:13", "owl"), ("12:21", "owl")],
    ]
    made = scene(spark, tmp_path, batches, windows("10 minutes", "5 minutes"), mode="update", key=KEYED)
    assert made.verify().state == "equal"
    write(tmp_path / "landing", [[("12:04", "donkey"), ("12:17", "owl")]])  # the watermark is 12:11 now
    made.run()
    verdict = made.verify()
    assert (verdict.state, verdict.rows_late, verdict.rows_actual) == ("late", 2, 12)
    assert {row.row["who"] for row in verdict.late} == {"donkey"}


def test_two_sources_share_the_older_watermark(spark: SparkSession, tmp_path: Path) -> None:
    others = [[("12:00", "x", 1), ("12:30", "x", 1)], [("12:30", "x", 1)], [("12:05", "x", 1), ("12:15", "x", 1)]]
    made = scene(spark, tmp_path, LATE_LAST, unite, mode="update", key=KEYED, others=others)
    verdict = made.verify()
    # The watermark is 12:20 when the last files come: 12:05 of both sources is late, 12:15 too, 12:45 is not.
    assert (verdict.state, verdict.rows_late) == ("late", 3)
    assert sorted(str(row.row["time"])[11:16] for row in verdict.late) == ["12:05", "12:05", "12:15"]
    assert verdict.rows_read == 9 + 5


def test_a_session_that_the_watermark_closed_before_its_last_row_is_that_of_the_same_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [[("12:00", "a", 1)], [("12:16", "a", 1)], [("12:16", "b", 1)], [("12:04", "a", 1)]]
    verdict = scene(spark, tmp_path, batches, sessions, mode="append", key=()).verify()
    # 12:00 gave a session until 12:05, closed at 12:06; 12:04 reaches until 12:09 and is not late.
    # No batch query gives that session; the same batches as a stream do, and the verdict says so.
    assert (verdict.state, verdict.rows_late, verdict.shown_by) == ("equal", 0, "rerun")
    assert [finding.code for finding in verdict.findings] == ["HR687"]


def test_the_dropped_rows_come_with_their_batch_and_watermark(spark: SparkSession, tmp_path: Path) -> None:
    made = scene(spark, tmp_path, LATE_LAST, windows("10 minutes"), mode="update", key=KEYED)
    dropped = find_late_rows(made.project, "q", spark=spark)
    dropped_rows = [
        (f"{row.time:%H:%M}", row.batch, f"{row.watermark:%H:%M}", row.behind.seconds // 60) for row in dropped.rows
    ]
    assert dropped_rows == [("12:05", 2, "12:50", 45), ("12:45", 2, "12:50", 5)]
    assert [(batch.operator, batch.batch, batch.rows) for batch in dropped.batches] == [("Aggregate", 2, 2)]
    verdict = made.verify()
    assert (verdict.state, verdict.rows_late, len(verdict.late), verdict.rows_open) == ("late", 2, 2, 0)
    assert verdict.rows_read == sum(map(len, LATE_LAST))
