"""Rows without an event time: what Spark leaves out of them is counted, by a count that Spark has no part in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.rounds import as_long
from tests.verifier.kit import Row, scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# Ten minutes of delay: what is of 12:30 or earlier is out in the end, and what is of 13:30 or later is not.
EVENTS: list[list[Row]] = [
    [("12:00", "a", 1.0), (None, "n", 2.0)],
    [(None, "n", 3.0), ("12:30", "b", 4.0)],
    [("13:30", "z", 5.0), (None, "n", 6.0)],
    [("13:31", "y", 7.0)],
]
OTHERS: list[list[Row]] = [[("12:01", "a", 8.0), (None, "n", 9.0)], [("12:20", "c", 1.0)], [("13:30", "z", 2.0)], []]


def windows(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy(F.window("time", "10 minutes"), "who").count().select("window.start", "who", "count")


def by_time(events: DataFrame) -> DataFrame:
    return events.groupBy("time").count()


def once(events: DataFrame) -> DataFrame:
    return events.dropDuplicatesWithinWatermark(["who"])


def join_of(kind: str) -> Callable[..., DataFrame]:
    def join(events: DataFrame, others: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        right = others.selectExpr("time AS other_time", "who AS other", "value AS other_value")
        near = "other_time BETWEEN time - INTERVAL 5 MINUTES AND time + INTERVAL 5 MINUTES"
        return events.join(right, F.expr(f"who = other AND {near}"), kind)

    return join


def flat(batches: Sequence[Sequence[Row]]) -> list[Row]:
    return [row for batch in batches for row in batch]


def minutes(time: Any) -> int:
    return 60 * int(time[:2]) + int(time[3:])


def pairs(left: list[Row], right: list[Row], kind: str) -> int:
    """How many rows the join has, counted pair by pair."""

    def match(one: Row, other: Row) -> bool:
        timed = one[0] is not None and other[0] is not None
        return timed and one[1] == other[1] and abs(minutes(one[0]) - minutes(other[0])) <= 5

    count = sum(match(one, other) for one in left for other in right)
    if kind == "left_semi":
        return sum(any(match(one, other) for other in right) for one in left)
    count += sum(not any(match(one, other) for other in right) for one in left) * kind.endswith("_outer")
    return count + sum(not any(match(one, other) for one in left) for other in right) * (kind == "full_outer")


@pytest.mark.parametrize(
    ("kind", "missing", "open_", "shown_by"),
    [
        as_long(("inner", 0, 0, "batch")),
        as_long(("left_semi", 0, 0, "batch")),
        as_long(("left_outer", 3, 1, "rerun")),
        ("full_outer", 4, 1, "rerun"),
    ],
)
def test_a_join_of_streams_counts_what_it_never_gives(
    kind: str, missing: int, open_: int, shown_by: str, spark: SparkSession, tmp_path: Path
) -> None:
    verdict = scene(spark, tmp_path, EVENTS, join_of(kind), mode="append", others=OTHERS).verify()
    assert (verdict.missing, verdict.rows_open, verdict.shown_by) == (missing, open_, shown_by)
    independent = pairs(flat(EVENTS), flat(OTHERS), kind)
    assert verdict.rows_actual + verdict.missing + verdict.rows_open == independent
    assert (verdict.exit_code, verdict.rows_untimed) == (0, 4)
    says = {
        "batch": "equal to the batch query over the same input",
        "rerun": "equal to another run over the same batches",
    }
    assert says[shown_by] in verdict.sentence
    assert says["rerun" if shown_by == "batch" else "batch"] not in verdict.sentence
    assert [finding.code for finding in verdict.findings] == (["HR687"] if missing else [])


@pytest.mark.parametrize(
    ("function", "independent", "missing", "open_", "surplus", "shown_by"),
    [
        # Spark's windows leave NULL out of a batch too; a group of NULL by the time itself is in the batch alone.
        pytest.param(
            *(windows, len({(row[0][:4], row[1]) for row in flat(EVENTS) if row[0]}), 0, 2, 0, "batch"),
            id="windows",
            marks=pytest.mark.long,
        ),
        pytest.param(by_time, len({row[0] for row in flat(EVENTS)}), 1, 2, 0, "batch", id="groups by the time itself"),
        pytest.param(once, len({row[1] for row in flat(EVENTS)}), 0, 0, 1, "rerun", id="one id within the watermark"),
    ],
)
def test_an_operator_of_one_stream_counts_what_it_gives_otherwise(
    function: Callable[[DataFrame], DataFrame],
    independent: int,
    missing: int,
    open_: int,
    surplus: int,
    shown_by: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    verdict = scene(spark, tmp_path, EVENTS, function, mode="append").verify()
    assert (verdict.missing, verdict.rows_open, verdict.unexpected) == (missing, open_, surplus), verdict
    assert verdict.rows_actual + verdict.missing + verdict.rows_open - verdict.unexpected == independent
    assert (verdict.shown_by, verdict.rows_untimed, verdict.exit_code) == (shown_by, 3, 0)
    assert "'events'" in verdict.shares[0]
    assert "3 rows read without an event time" in verdict.sentence
