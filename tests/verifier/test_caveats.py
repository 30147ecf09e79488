"""Why a difference may prove nothing is reported, where no other run over the same batches can settle it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import OutputMode
from headrace.verifier import rerun
from tests.verifier.kit import Row, Scene, scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def count_windows(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy(F.window("time", "10 minutes"), "who").count().select("who", "count")


def first_value(events: DataFrame) -> DataFrame:
    return events.select("who", "value").dropDuplicates(["who"])


def largest(events: DataFrame) -> DataFrame:
    return events.groupBy("who").count().orderBy("count").limit(1)


def sessions(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    counts = events.groupBy(F.session_window("time", "10 minutes"), "who").count()
    return counts.select(F.col("session_window.start").alias("start"), "count")


def another_for_a_batch(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    if events.isStreaming:
        return events.groupBy("who").count()
    return events.select("who", F.lit(7).cast("long").alias("count"))


def change(made: Scene) -> None:
    """Change every row of the sink, so that it differs from any answer."""
    with made.table.connect() as connection:
        for name, text in connection.execute("SELECT rowid, json FROM record").fetchall():
            changed = {key: "z" if key == "who" else value for key, value in json.loads(text).items()}
            connection.execute("UPDATE record SET json = ? WHERE rowid = ?", (json.dumps(changed), name))


@dataclass(frozen=True, kw_only=True)
class Case:
    code: str
    function: Callable[..., Any]
    mode: OutputMode
    batches: list[list[Row]]
    key: tuple[str, ...] = ()
    delay: str | None = None
    spoil: Callable[[Scene], None] = lambda made: None


TWO: list[list[Row]] = [[("12:00", "a", 1.0), ("12:00", "b", 1.0)], [("12:15", "a", 2.0)]]
TIES = TWO[:1]
# The session of 12:05 is closed when the row of 12:12 comes, which is in time for a session of its own.
CLOSED: list[list[Row]] = [
    [(time, who, 1.0)]
    for time, who in (("12:05", "a"), ("12:30", "b"), ("12:31", "b"), ("12:12", "a"), ("13:30", "b"), ("13:31", "b"))
]
CASES = [
    Case(code="HR706", function=sessions, mode="append", delay="10 minutes", batches=CLOSED),
    Case(code="HR641", function=first_value, mode="append", batches=TWO, spoil=change),
    Case(code="HR709", function=count_windows, mode="update", key=("who",), delay="10 minutes", batches=TWO),
    Case(code="HR710", function=another_for_a_batch, mode="update", key=("who",), batches=TWO),
    Case(code="HR641", function=largest, mode="complete", batches=TIES, spoil=change),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_a_difference_that_proves_nothing_says_why(
    case: Case, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerun, "MOST_BATCHES", 0)
    made = scene(spark, tmp_path, case.batches, case.function, mode=case.mode, key=case.key, delay=case.delay)
    case.spoil(made)
    verdict = made.verify()
    assert (verdict.state, verdict.exit_code) == ("undecided", 1)
    assert case.code in [finding.code for finding in verdict.findings], verdict.findings
