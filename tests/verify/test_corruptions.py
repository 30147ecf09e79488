"""Rows of right results deleted, doubled, changed and added: verify says wrong, and names each row and no other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import OutputMode
from headrace.verify import Verdict
from headrace.verify.verdict import plain
from tests.verify.kit import Scene, scene

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

EVENTS = [
    [("12:00", "a", 1.0), ("12:01", "b", 2.0), ("12:03", "a", 3.0)],
    [("12:20", "a", 4.0), ("12:21", "c", 5.0), ("12:22", "b", 6.0)],
    [("12:45", "b", 7.0), ("12:46", "a", 8.0), ("12:46", "a", 8.0)],
    [("12:02", "a", 9.0), ("13:15", "c", 10.0), ("13:16", "a", 11.0)],
    # The window of 13:30 is closed by the watermark, 13:40, and not yet behind a join that waits five minutes more.
    [("13:50", "d", 12.0), ("13:38", "e", 13.0)],
]
OTHERS = [
    [("12:02", "a", 1.5), ("12:04", "b", 2.5)],
    [("12:24", "c", 5.5)],
    [("12:47", "a", 8.5), ("12:48", "z", 8.5)],
    [("13:17", "c", 10.5), ("12:03", "b", 0.5)],
    [("13:51", "d", 12.5), ("13:39", "e", 13.5)],
]


def windows(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    counted = events.groupBy("who", F.window("time", "10 minutes")).agg(F.count("*").alias("n"))
    return counted.select("who", F.col("window.start").alias("start"), "n")


def sums(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(F.sum("value").alias("total"), F.count("*").alias("n"))


def sliding(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    counted = events.groupBy("who", F.window("time", "20 minutes", "10 minutes")).agg(F.max("value").alias("n"))
    return counted.select("who", F.col("window.start").alias("start"), "n")


def _joined(events: DataFrame, others: DataFrame, how: str) -> DataFrame:
    from pyspark.sql import functions as F

    left = events.select("time", "who", F.col("value").alias("n"))
    right = others.select(F.col("time").alias("at"), F.col("who").alias("whom"), F.col("value").alias("m"))
    near = F.expr("who = whom AND at BETWEEN time AND time + INTERVAL 5 MINUTES")
    return left.join(right, near, how)


def inner(events: DataFrame, others: DataFrame) -> DataFrame:
    return _joined(events, others, "inner").select("who", "time", "n", "m")


def outer(events: DataFrame, others: DataFrame) -> DataFrame:
    return _joined(events, others, "left").select("who", "time", "n", "m")


def counted_join(events: DataFrame, others: DataFrame) -> DataFrame:
    return windows(_joined(events, others, "inner").select("who", "time"))


def distinct(events: DataFrame) -> DataFrame:
    return events.dropDuplicatesWithinWatermark(["who", "time"]).selectExpr("who", "time", "value AS n")


def top(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(F.sum("value").alias("n")).orderBy(F.desc("n")).limit(2)


def sessions(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    counted = events.groupBy("who", F.session_window("time", "5 minutes")).agg(F.count("*").alias("n"))
    return counted.select("who", F.col("session_window.start").alias("start"), "n")


def chained(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    first = events.groupBy("who", F.window("time", "5 minutes")).agg(F.count("*").alias("m"))
    second = first.groupBy(F.window(F.window_time("window"), "10 minutes")).agg(F.sum("m").alias("n"))
    return second.select(F.col("window.start").alias("start"), "n")


def collected(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(
        F.size(F.collect_set("value")).alias("n"), F.sort_array(F.collect_list("value")).alias("values")
    )


def largest(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(F.max_by("time", "value").alias("at"), F.max("value").alias("n"))


def counting(events: DataFrame) -> DataFrame:
    def count(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd

        if state.hasTimedOut:
            (total,) = state.get
            state.remove()
            yield pd.DataFrame({"who": [key[0]], "n": [-total]})
            return
        total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((total,))
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 40 * 60_000)
        yield pd.DataFrame({"who": [key[0]], "n": [total]})

    return events.groupBy("who").applyInPandasWithState(
        count, "who STRING, n LONG", "total LONG", "update", "EventTimeTimeout"
    )


Damage = Callable[[dict[str, Any]], list[dict[str, Any]]]


def delete(row: dict[str, Any]) -> list[dict[str, Any]]:
    return []


def double(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, row]


def change(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "n": row["n"] + 1}]


def add(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, {**row, "n": row["n"] + 1, **({"who": "new"} if "who" in row else {"start": "2024-01-01T11:00:00Z"})}]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A query, how its right result is judged, and what is done to rows of it; the first `few` in each run.

    A difference makes verify run the stream again, which takes seconds: the few are done to as many rows of one result,
    and `make soak` does all, each to a result of its own.
    """

    function: Callable[..., DataFrame]
    mode: OutputMode = "append"
    key: tuple[str, ...] = ()
    right: str = "equal"
    pending: int | None = None
    damages: tuple[Damage, ...] = ()
    few: int = 1

    @property
    def joins(self) -> bool:
        return self.function in (inner, outer, counted_join)

    @property
    def tried(self) -> list[tuple[Damage, ...]]:
        """The damages that are done to one result."""
        return [(each,) for each in self.damages] if EVERY_DAMAGE else [self.damages[: self.few]]


# `make soak` has every one.
EVERY_DAMAGE = "HEADRACE_DAMAGES" in os.environ
CASES = (
    Case(function=windows, right="late", pending=1, damages=(delete, double, change, add), few=4),
    Case(function=sums, mode="update", key=("who",), damages=(delete, change, add), few=3),
    Case(function=sums, mode="complete", damages=(double, change), few=2),
    Case(function=sliding, mode="update", key=("who", "start"), right="late", damages=(change, delete)),
    Case(function=inner, right="late", damages=(delete, double, change, add), few=2),
    Case(function=outer, right="late", damages=(change, add, delete, double), few=2),
    Case(function=counted_join, right="late", pending=2, damages=(delete, add)),
    Case(function=distinct, right="late", damages=(double, delete, change)),
    Case(function=top, mode="complete", key=("who",), damages=(add, delete, change)),
    Case(function=sessions, right="late", pending=1, damages=(change, delete, double)),
    Case(function=chained, right="late", pending=1, damages=(delete, change)),
    Case(function=collected, mode="update", key=("who",), damages=(change, delete)),
    Case(function=largest, mode="update", key=("who",), damages=(delete, change)),
    Case(function=counting, mode="update", key=("who",), right="late", damages=(change, delete, add), few=2),
)


@pytest.mark.spark
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.function.__name__}, {case.mode}")
def test_a_right_result_is_right_and_each_damaged_row_is_told(
    case: Case, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    others = OTHERS if case.joins else None
    made = scene(spark, tmp_path, EVENTS, case.function, mode=case.mode, key=case.key, others=others)
    verdict = made.verify()
    assert verdict.state == case.right, verdict
    assert case.pending is None or verdict.rows_open >= case.pending
    rows = [json.loads(row[0]) for row in made.table.connect().execute("SELECT json FROM record ORDER BY json")]
    single = [row for row in rows if rows.count(row) == 1]
    missed = {}
    for damages in case.tried:
        begin = (len(single) - len(damages)) // 2
        victims = single[begin : begin + len(damages)]
        done = dict(zip(damages, victims, strict=True))
        spoilt = [row for damage, victim in done.items() for row in damage(victim)]
        hold(made, [*(row for row in rows if row not in victims), *spoilt])
        verdict = made.verify()
        unnamed = [damage.__name__ for damage, victim in done.items() if not names(verdict, victim, damage)]
        if verdict.state != "mismatch" or unnamed or len(verdict.differences) > sum(map(most_differences, damages)):
            missed[" and ".join(each.__name__ for each in damages)] = (unnamed, verdict)
    assert missed == {}


@pytest.mark.plain
def test_every_kind_of_damage_is_tried_and_in_every_mode() -> None:
    tried = [(damage, case.mode) for case in CASES for damage in case.damages[: case.few]]
    assert len(tried) >= 20
    assert {damage for damage, _ in tried} == {delete, double, change, add}
    assert {mode for _, mode in tried} == {"append", "update", "complete"}


def hold(made: Scene, rows: list[dict[str, Any]]) -> None:
    """Let the sink hold these rows and no others."""
    with made.table.connect() as connection:
        connection.execute("DELETE FROM record")
        for row in rows:
            identity = json.dumps([row.get(name) for name in made.table.key]) if made.table.key else None
            connection.execute("INSERT INTO record VALUES (?, ?)", (identity, json.dumps(row)))


def most_differences(damage: Damage) -> int:
    """A changed row without a key is one that is missing and one that is too many."""
    return 2 if damage is change else 1


def names(verdict: Verdict, victim: dict[str, Any], damage: Damage) -> bool:
    """Whether a difference is of the row that was damaged, or of the new one, and is what was done to it."""
    (*_, row) = damage(victim) or [victim]
    kinds = {"delete": {"missing"}, "change": {"different", "unexpected"}}.get(damage.__name__, {"unexpected"})
    shown = [(each.expected if damage is delete else each.actual) for each in verdict.differences if each.kind in kinds]
    return any(each and plain(each["n"]) == row["n"] and each.get("who") == row.get("who") for each in shown)
