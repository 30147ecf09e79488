"""Rows of right results deleted, doubled, changed and added: verify says wrong, and names each row and no other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import OutputMode
from headrace.errors import plain
from headrace.verifier.verdict import Difference, Verdict
from tests.rounds import as_long
from tests.verifier.kit import Scene, scene

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


def _join(events: DataFrame, others: DataFrame, how: str) -> DataFrame:
    from pyspark.sql import functions as F

    left = events.select("time", "who", F.col("value").alias("n"))
    right = others.select(F.col("time").alias("at"), F.col("who").alias("whom"), F.col("value").alias("m"))
    near = F.expr("who = whom AND at BETWEEN time AND time + INTERVAL 5 MINUTES")
    return left.join(right, near, how)


def inner(events: DataFrame, others: DataFrame) -> DataFrame:
    return _join(events, others, "inner").select("who", "time", "n", "m")


def outer(events: DataFrame, others: DataFrame) -> DataFrame:
    return _join(events, others, "left").select("who", "time", "n", "m")


def counted_join(events: DataFrame, others: DataFrame) -> DataFrame:
    return windows(_join(events, others, "inner").select("who", "time"))


def distinct(events: DataFrame) -> DataFrame:
    return events.dropDuplicatesWithinWatermark(["who", "time"]).selectExpr("who", "time", "value AS n")


def top(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(F.sum("value").alias("n")).orderBy(F.desc("n")).limit(2)


def sessions(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    counted = events.groupBy("who", F.session_window("time", "5 minutes")).agg(F.count("*").alias("n"))
    return counted.select("who", F.col("session_window.start").alias("start"), "n")


def chain(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    first = events.groupBy("who", F.window("time", "5 minutes")).agg(F.count("*").alias("m"))
    second = first.groupBy(F.window(F.window_time("window"), "10 minutes")).agg(F.sum("m").alias("n"))
    return second.select(F.col("window.start").alias("start"), "n")


def collect_numbers(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(
        F.size(F.collect_set("value")).alias("n"),
        F.sort_array(F.collect_list("value")).alias("values"),
        F.create_map(F.lit("n"), F.count("*")).alias("counts"),
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


def processing(events: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "total LONG")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            import pandas as pd

            before = self.total.get()[0] if self.total.exists() else 0
            total = before + sum(len(frame) for frame in rows)
            self.total.update((total,))
            yield pd.DataFrame({"who": [key[0]], "n": [total]})

        def close(self) -> None:
            pass

    return events.groupBy("who").transformWithStateInPandas(Count(), "who STRING, n LONG", "update", "None")


Row = Mapping[str, Any]
# Whether an input row (with `source`, `at` and `batch`) is part of what a row of the result is made of.
Feeds = Callable[[Row, Row], bool]


def minutes(time: str) -> int:
    """The minute of the day of a time as 12:05."""
    return int(time[:2]) * 60 + int(time[3:5])


def at(row: Row, column: str) -> int:
    return minutes(row[column][11:16])


def inputs() -> list[Row]:
    """Every row of the sources, but those that come too late for each operator with a watermark."""
    return [
        {"source": source, "batch": batch, "at": minutes(time), "who": who, "value": value}
        for source, batches in (("events", EVENTS), ("others", OTHERS))
        for batch, rows in enumerate(batches)
        for time, who, value in rows
    ]


def is_late(row: Row) -> bool:
    return (row["at"], row["batch"]) in {(minutes("12:02"), 3), (minutes("12:03"), 3)}


def of_who(row: Row, given: Row) -> bool:
    return bool(given["who"] == row["who"])


def of_window(length: int) -> Feeds:
    def feeds(row: Row, given: Row) -> bool:
        within = at(row, "start") <= given["at"] < at(row, "start") + length
        return within and not is_late(given) and ("who" not in row or of_who(row, given))

    return feeds


def of_pair(row: Row, given: Row) -> bool:
    if given["source"] == "events":
        return of_who(row, given) and (given["at"], given["value"]) == (at(row, "time"), row["n"])
    return of_who(row, given) and given["value"] == row.get("m") and 0 <= given["at"] - at(row, "time") <= 5


def of_pairs(row: Row, given: Row) -> bool:
    near = [
        other
        for other in inputs()
        if other["source"] != given["source"]
        and of_who(other, given)
        and not is_late(other)
        and 0 <= (given["at"] - other["at"]) * (1 if given["source"] == "others" else -1) <= 5
    ]
    lefts = [given] if given["source"] == "events" else near
    return bool(near) and not is_late(given) and any(of_window(10)(row, left) for left in lefts)


def of_row(row: Row, given: Row) -> bool:
    return of_who(row, given) and given["at"] == at(row, "time")


def of_session(row: Row, given: Row) -> bool:
    times = sorted({event["at"] for event in inputs() if event["source"] == "events" and of_who(row, event)})
    within, last = [], at(row, "start")
    for time in times:
        if last <= time <= last + 5:
            within.append(time)
            last = time
    return of_who(row, given) and given["at"] in within and not is_late(given)


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
    feeds: Feeds
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
        return [(damage,) for damage in self.damages] if EVERY_DAMAGE else [self.damages[: self.few]]


# `make soak` has every one.
EVERY_DAMAGE = "HEADRACE_DAMAGES" in os.environ
CASES = (
    Case(function=windows, feeds=of_window(10), right="late", pending=1, damages=(delete, double, change, add), few=4),
    Case(function=sums, feeds=of_who, mode="update", key=("who",), damages=(delete, change, add), few=3),
    Case(function=sums, feeds=of_who, mode="complete", damages=(double, change), few=2),
    Case(
        function=sliding,
        feeds=of_window(20),
        mode="update",
        key=("who", "start"),
        right="late",
        damages=(change, delete),
    ),
    Case(function=inner, feeds=of_pair, right="late", damages=(delete, double, change, add), few=4),
    Case(function=outer, feeds=of_pair, right="late", damages=(change, add, delete, double), few=4),
    Case(function=counted_join, feeds=of_pairs, right="late", pending=2, damages=(delete, add), few=2),
    Case(function=distinct, feeds=of_row, right="late", damages=(double, delete, change), few=3),
    Case(function=top, feeds=of_who, mode="complete", key=("who",), damages=(add, delete, change)),
    Case(function=sessions, feeds=of_session, right="late", pending=1, damages=(change, delete, double), few=3),
    Case(function=chain, feeds=of_window(10), right="late", pending=1, damages=(delete, change), few=2),
    Case(function=collect_numbers, feeds=of_who, mode="update", key=("who",), damages=(change, delete), few=2),
    Case(function=largest, feeds=of_who, mode="update", key=("who",), damages=(delete, change), few=2),
    Case(
        function=counting, feeds=of_who, mode="update", key=("who",), right="late", damages=(change, delete, add), few=2
    ),
    Case(
        function=processing,
        feeds=of_who,
        mode="update",
        key=("who",),
        right="late",
        damages=(change, delete, add),
        few=2,
    ),
)


# Others take the same ways through verify.
OTHERS_LONG = (
    *(sliding, inner, largest, top, chain, collect_numbers, processing, counting, counted_join, sessions),
    distinct,  # tests/verifier/test_proof.py loses a row of one.
)


@pytest.mark.spark
@pytest.mark.parametrize(
    "case",
    [as_long(case) if case.function in OTHERS_LONG else case for case in CASES],
    ids=[f"{case.function.__name__}, {case.mode}" for case in CASES],
)
def test_a_right_result_is_right_and_each_damaged_row_is_named(
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
        unnamed += [
            f"cause of {damage.__name__}" for damage in done if not explains(case, verdict, done[damage], damage)
        ]
        if verdict.state != "mismatch" or unnamed or len(verdict.differences) > sum(map(most_differences, damages)):
            missed[" and ".join(damage.__name__ for damage in damages)] = (unnamed, verdict)
    assert missed == {}


@pytest.mark.plain
def test_every_kind_of_damage_is_tried_and_in_every_mode() -> None:
    usual = [case for case in CASES if case.function not in OTHERS_LONG]
    tried = [(damage, case.mode) for case in usual for damage in case.damages[: case.few]]
    assert len(tried) >= 13
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
    shown = [
        (difference.expected if damage is delete else difference.actual)
        for difference in verdict.differences
        if difference.kind in kinds
    ]
    return any(other and plain(other["n"]) == row["n"] and other.get("who") == row.get("who") for other in shown)


def explains(case: Case, verdict: Verdict, victim: dict[str, Any], damage: Damage) -> bool:
    """Whether the difference names the last batch and the input rows of the damaged row, and of a new row that none."""
    shown = [difference for difference in verdict.differences if is_of(difference, victim, damage)]
    true = {
        (row["source"], row["batch"], row["at"], row["who"], row["value"])
        for row in inputs()
        if case.feeds(victim, row) and (case.joins or row["source"] == "events")
    }
    causes = [
        (row.source, row.batch, at(given := json.loads(row.row), "time"), given["who"], given["value"])
        for difference in shown
        for row in difference.fed_by or ()
    ]
    if damage is add:
        return [difference.fed_by for difference in shown] == [()]
    files = all(row.file.endswith(f"/{row.batch:03d}.json") for difference in shown for row in difference.fed_by or ())
    last = {difference.last_batch for difference in shown} == {max(row[1] for row in true)}
    return bool(causes) and {*causes} <= true and len(causes) >= min(len(true), 2) and last and files


def is_of(difference: Difference, victim: dict[str, Any], damage: Damage) -> bool:
    (*_, row) = damage(victim) or [victim]
    if damage is add:
        return difference.actual is not None and alike(difference.actual, row)
    held = difference.actual if damage is double else difference.expected
    return held is not None and alike(held, victim)


def alike(row: Row, other: Row) -> bool:
    def text(value: Any) -> str:
        return value.astimezone(timezone.utc).isoformat()[:16] if isinstance(value, datetime) else str(value)[:16]

    return all(text(value) == text(other.get(name)) for name, value in row.items() if name not in ("values", "counts"))
