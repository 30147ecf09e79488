"""The guide's compatibility matrix of query types and output modes, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .join_scenes import query, refusals_of, scene_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.capability("MODE-01")]

# The row of 10:30 is late: the watermark is 11:30, and was so in the batch before, when it comes.
TIMELINE = [[("a", "10:00"), ("a", "10:20")], [("b", "13:30")], [], [("a", "10:30")]]
STATE = """
import pandas as pd

def seen(key, frames, state):
    before = state.get[0] if state.exists else 0
    count = before + sum(len(frame) for frame in frames)
    state.update((count,))
    yield pd.DataFrame({"ad": [key[0]], "seen": [count]})

def counted(frame, mode):
    return frame.groupBy("i_ad").applyInPandasWithState(seen, "ad STRING, seen LONG", "n LONG", mode, "NoTimeout")
"""
WINDOWS = (
    "impressions.groupBy(F.window('i_time', '1 hour')).agg(F.count('*').alias('n'))"
    ".select(F.date_format('window.start', 'HH:mm').alias('k'), 'n')"
)
GROUPS = "plain_impressions.groupBy(F.col('i_ad').alias('k')).agg(F.count('*').alias('n'))"
JOINED = "impressions.join(clicks, F.expr(WITHIN)).selectExpr('i_ad AS k', SHOWN[3])"
OTHER = "impressions.where(\"i_ad = 'a'\").selectExpr(\"concat(i_ad, date_format(i_time, 'HH:mm')) AS k\")"
MAPPED = "counted(plain_impressions, '{}').withColumnRenamed('ad', 'k')"
COUNTED_AFTER = f"{MAPPED.format('append')}.groupBy('k').agg(F.sum('seen').alias('n'))"
ALL_SEEN = [("a", 2), ("a", 3), ("b", 1)]

ANSWERS: dict[str, tuple[str, dict[str, list[tuple[Any, ...]]]]] = {
    "windows with a watermark": (
        WINDOWS,
        {
            "append": [("10:00", 2)],
            "update": [("10:00", 2), ("13:00", 1)],
            "complete": [("10:00", 3), ("13:00", 1)],
        },
    ),
    "other aggregations": (GROUPS, {"update": [("a", 3), ("b", 1)], "complete": [("a", 3), ("b", 1)]}),
    "state, operator in update mode": (MAPPED.format("update"), {"update": [("a", 3), ("b", 1)]}),
    "state, operator in append mode": (MAPPED.format("append"), {"append": ALL_SEEN}),
    "state, then an aggregation": (COUNTED_AFTER, {"update": [("a", 5), ("b", 1)], "complete": [("a", 5), ("b", 1)]}),
    "joins": (JOINED, {"append": [("a", "10:10")]}),
    "other queries": (
        OTHER,
        {"append": [("a10:00",), ("a10:20",), ("a10:30",)], "update": [("a10:00",), ("a10:20",), ("a10:30",)]},
    ),
}
CODES = {
    ("other aggregations", "append"): "HR221",
    ("state, then an aggregation", "append"): "HR221",
    ("joins", "update"): "HR227",
    ("joins", "complete"): "HR227",
    ("other queries", "complete"): "HR227",
}
MODES = ("append", "update", "complete")


def declare(inputs: str, body: str, *, of: Sequence[str] = MODES) -> list[str]:
    """The same result in several modes, each into a table of its own."""
    return [query(inputs, body, mode=mode, key=["k"] if mode == "update" else (), name=f"in_{mode}") for mode in of]


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_allowed_mode_gives_its_rows_and_any_other_is_refused(
    tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    body, allowed = ANSWERS[kind]
    inputs = "impressions, clicks" if kind == "joins" else body.split(".")[0].removeprefix("counted(").split(",")[0]
    made = scene_of(
        tmp_path / "allowed",
        spark,
        declare(inputs, body, of=list(allowed)),
        extra=STATE,
        impressions=TIMELINE,
        clicks=[[("a", "10:10")]],
    )
    made.run()
    assert {mode: made.rows(table=f"in_{mode}") for mode in allowed} == allowed
    others = [mode for mode in MODES if mode not in allowed]
    refusals = refusals_of(tmp_path / "refused", spark, declare(inputs, body, of=others), extra=STATE) if others else {}
    for mode in others:
        refusal = refusals[f"in_{mode}"]
        assert refusal.code == CODES.get((kind, mode), refusal.code)
        assert mode in refusal.what.lower()
        if (kind, mode) not in CODES and mode != "complete":
            assert (
                refusal.fix == "give the query the mode of its operator with state, or the operator that of the query"
            )


def test_no_aggregation_after_state_in_update_mode(tmp_path: Path, spark: SparkSession) -> None:
    body = COUNTED_AFTER.replace("'append'", "'update'")
    refusals = refusals_of(tmp_path, spark, declare("plain_impressions", body), extra=STATE)
    assert refusals.keys() == {f"in_{mode}" for mode in MODES}
    assert all("aggregation" in refusal.what for refusal in refusals.values())
    fixes = [refusal.fix for name, refusal in refusals.items() if name != "in_append"]
    assert all(fix.startswith("give the operator with state the mode append") for fix in fixes)
