"""Where the watermarks of a join of two streams have to be: plain Spark's answer next to the batch query's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.checks.state_bounds import check_joins
from headrace.spark.plans.analysed import optimised_plan
from headrace.spark.plans.operations import stream_joins
from tests.checks.test_joins import QUERY
from tests.rounds import only_usual

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.capability("JOIN-STST-04", "JOIN-STST-05")]

SCHEMA = "k STRING, seen TIMESTAMP, time TIMESTAMP"
SAME = "a.k = b.k AND a.time = b.time"
WITHIN = "a.k = b.k AND b.time BETWEEN a.time AND a.time + INTERVAL 10 MINUTES"
AROUND = "a.k = b.k AND a.time BETWEEN b.time - INTERVAL 10 MINUTES AND b.time"
# What lands, in this order: the side, the key, and when it was seen and happened; no row is late by its own watermark.
RIGHT_LATER = [("a", "x", "12:00", "12:00"), ("a", "z", "13:00", "13:00"), ("b", "y", "13:00", "13:00")]
RIGHT_LATE = [*RIGHT_LATER, ("a", "y", "13:00", "13:00"), ("b", "x", "13:00", "12:00")]
LEFT_LATE = [(side.translate({97: "b", 98: "a"}), *row) for side, *row in RIGHT_LATE]
SEEN_BEFORE = [
    ("a", "x", "12:00", "13:00"),
    ("a", "z", "12:30", "12:30"),
    ("b", "z", "12:30", "12:30"),
    ("a", "y", "12:31", "12:31"),
    ("b", "x", "13:00", "13:05"),
]
Rows = list[tuple[str, str, str, str]]
CASES: dict[str, tuple[str, str, str, Rows, bool]] = {
    # the watermarks of the left and the right side, the condition, what lands, and whether it is right
    "equal times, the right one without a watermark": ("time", "", SAME, RIGHT_LATE, False),
    "equal times, the left one without a watermark": ("", "time", SAME, LEFT_LATE, False),
    "equal times, the right watermark on another column": ("time", "seen", SAME, RIGHT_LATE, False),
    "equal times with watermarks": ("time", "time", SAME, RIGHT_LATER, True),
    "a range, the left watermark on another column": ("seen", "time", WITHIN, SEEN_BEFORE, False),
    "a range of watermarked times": ("time", "time", WITHIN, RIGHT_LATER, True),
    "a range from the other side": ("time", "time", AROUND, RIGHT_LATER, True),
}


def join(left: DataFrame, right: DataFrame, condition: str, kind: str) -> DataFrame:
    from pyspark.sql import functions as F

    # A column with a watermark that nothing uses would not come to the join.
    shown = ["a.k AS left", "date_format(a.time, 'HH:mm') AS at", "date_format(a.seen, 'HH:mm') AS seen"]
    shown += [] if kind == "leftsemi" else ["b.k AS right"]
    return left.alias("a").join(right.alias("b"), F.expr(condition), kind).selectExpr(*shown)


class Streams:
    """Two directories that a plain query of Spark joins."""

    def __init__(self, spark: SparkSession, home: Path, watermarks: dict[str, str]) -> None:
        self.spark, self.home, self.watermarks = spark, home, watermarks
        for side in "ab":
            (home / side).mkdir(parents=True)

    def frames(self, streaming: bool) -> list[DataFrame]:
        frames = []
        for side, column in self.watermarks.items():
            if not streaming:
                frames.append(self.spark.read.schema(SCHEMA).json(str(self.home / side)))
                continue
            frame = self.spark.readStream.name(side).schema(SCHEMA).json(str(self.home / side))
            frames.append(frame.withWatermark(column, "0 seconds") if column else frame)
        return frames

    def land(self, number: int, side: str, key: str, seen: str, time: str) -> None:
        row = {"k": key, "seen": f"2026-01-01T{seen}:00", "time": f"2026-01-01T{time}:00"}
        (self.home / side / f"{number}.json").write_text(json.dumps(row))


# Spark refuses a right outer join whose left watermark is on a column that the condition does not name.
TABLE = [
    (case, kind)
    for case in CASES
    for kind in ("left", "right", "full", "leftsemi")
    if (case, kind) != ("a range, the left watermark on another column", "right")
]
# One that is wrong, and some that are right. What the check says of all of them, another test asks.
USUAL = [
    ("equal times, the right one without a watermark", "full"),
    ("equal times with watermarks", "left"),
    ("a range of watermarked times", "full"),
    ("a range from the other side", "leftsemi"),
]


def severities(spark: SparkSession, frame: DataFrame) -> list[str]:
    """What the check says of where the watermarks of a join are."""
    findings = check_joins(QUERY, stream_joins(spark, optimised_plan(frame)))
    return [finding.severity for finding in findings if finding.code == "HR296"]


@pytest.mark.parametrize(("case", "kind"), only_usual(TABLE, *USUAL))
def test_a_join_is_refused_exactly_where_a_row_contradicts_the_batch_query(
    spark: SparkSession, tmp_path: Path, case: str, kind: str
) -> None:
    left, right, condition, rows, is_right = CASES[case]
    streams = Streams(spark, tmp_path / "in", {"a": left, "b": right})
    frame = join(*streams.frames(True), condition, kind)
    assert set(severities(spark, frame)) == (set() if is_right else {"error"})
    name = "joined_" + "".join(filter(str.isalnum, f"{case}{kind}"))
    writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / "c"))
    query: Any = writer.start()
    try:
        for number, row in enumerate(rows):
            streams.land(number, *row)
            query.processAllAvailable()
    finally:
        query.stop()
    answer = {tuple(row) for row in spark.table(name).collect()}
    expected = {tuple(row) for row in join(*streams.frames(False), condition, kind).collect()}
    if is_right:
        assert answer <= expected
    elif kind == "leftsemi":
        assert not expected <= answer
    else:
        assert not answer <= expected


def test_an_inner_join_that_misses_matches_is_a_warning_and_a_sound_one_is_not_mentioned(
    spark: SparkSession, tmp_path: Path
) -> None:
    severities_of = {}
    for number, (case, (left, right, condition, _, _)) in enumerate(CASES.items()):
        frames = Streams(spark, tmp_path / str(number), {"a": left, "b": right}).frames(True)
        for kind in ["inner", *(kind for of, kind in TABLE if of == case)]:
            severities_of[case, kind] = severities(spark, join(*frames, condition, kind))
    assert severities_of.keys() > set(TABLE)
    for (case, kind), severity in severities_of.items():
        assert severity == ([] if CASES[case][-1] else ["warning" if kind == "inner" else "error"]), (case, kind)
