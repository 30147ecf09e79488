"""Aggregations not based on time, and the ones that a stream cannot keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, verify
from headrace.frames.plan_builder import build

from .scenes import land, play, project, query, refusal_of, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

READINGS = source("readings", "sensorId STRING, value DOUBLE, errorCode INT")
BATCHES = [
    [("a", 1.0, 7), ("a", 3.0, 7), ("b", 10.0, None)],
    [("a", 5.0, 9), ("b", 10.0, 1)],
]


def land_readings(root: Path) -> None:
    names = ("sensorId", "value", "errorCode")
    land(root, "readings", *([dict(zip(names, row, strict=True)) for row in batch] for batch in BATCHES))


@pytest.mark.capability("OP-AGG-01")
def test_the_count_of_everything_grows_batch_by_batch(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path, READINGS, query("readings.groupBy().count()", inputs="readings", mode="complete"))
    land_readings(root)
    played = play(root, spark, "SELECT * FROM q")
    assert [trigger.table for trigger in played.triggers] == [[(3,)], [(5,)]]
    assert played.state_rows == 1


@pytest.mark.capability("OP-AGG-01")
def test_several_aggregates_are_kept_together_for_each_group(tmp_path: Path, spark: SparkSession) -> None:
    result = """
        readings.groupBy("sensorId").agg(
            F.count("*").alias("count"), F.mean("value").alias("baselineValue"), F.stddev("value").alias("spread"),
            F.array_join(F.sort_array(F.collect_set("errorCode")), ",").alias("allErrorCodes"),
            F.approx_count_distinct("value").alias("different"), F.sum("value").alias("sum"))
    """
    root = project(tmp_path, READINGS, query(result, inputs="readings", mode="update", key=["sensorId"]))
    land_readings(root)
    played = play(root, spark, "SELECT * FROM q ORDER BY 1")
    assert [trigger.table for trigger in played.triggers] == [
        [("a", 2, 2.0, pytest.approx(2**0.5), "7", 2, 4.0), ("b", 1, 10.0, None, "", 1, 10.0)],
        [("a", 3, 3.0, 2.0, "7,9", 3, 9.0), ("b", 2, 10.0, 0.0, "1", 1, 20.0)],
    ]
    assert verify(load(root), "q", spark=spark).state == "equal"


OWN = """
import pandas as pd
import pyarrow as pa

@F.pandas_udf("double")
def middle(value: pd.Series) -> float:
    return float(value.median())

@F.arrow_udf("double")
def middle_arrow(value: pa.Array) -> float:
    return 0.0

def middles(frame):
    return pd.DataFrame({"sensorId": frame["sensorId"][:1], "middle": [frame["value"].median()]})

def both(left, right):
    return left

def spread(column):
    return F.max(column) - F.min(column)

def product(column):
    return F.reduce(F.collect_list(column), F.lit(1.0), lambda so_far, value: so_far * value)
"""
OTHERS = source("others", "sensorId STRING, value DOUBLE, errorCode INT")
REFUSED = {
    "countDistinct": ('readings.groupBy("sensorId").agg(F.countDistinct("errorCode"))', "Distinct aggregations"),
    "sum_distinct": ('readings.groupBy("sensorId").agg(F.sum_distinct("errorCode"))', "Distinct aggregations"),
    "in pandas": ('readings.groupBy("sensorId").agg(middle("value"))', "the Python function middle"),
    "in an expression": ('readings.groupBy().agg(1 + middle("value"))', "the Python function middle"),
    "in arrow": ('readings.groupBy("sensorId").agg(middle_arrow("value"))', "the Python function middle_arrow"),
    "of whole groups": (
        'readings.groupBy("sensorId").applyInPandas(middles, "sensorId STRING, middle DOUBLE")',
        "uses applyInPandas, which in a stream is given a group's rows of one batch only",
    ),
    "of groups of two streams": (
        'readings.groupBy("sensorId").cogroup(others.groupBy("sensorId")).applyInPandas(both, readings.schema)',
        "applyInPandas of two streams",
    ),
}


@pytest.mark.capability("OP-AGG-02")
@pytest.mark.parametrize(("result", "words"), REFUSED.values(), ids=REFUSED)
def test_an_aggregate_that_a_stream_cannot_keep_is_refused(
    tmp_path: Path, spark: SparkSession, result: str, words: str
) -> None:
    inputs = "readings, others" if "others" in result else "readings"
    root = project(tmp_path, OWN, READINGS, OTHERS, query(result, inputs=inputs, mode="update", key=["sensorId"]))
    land_readings(root)
    land(root, "others", [])
    error = refusal_of(root, spark)
    assert error.code == "HR226"
    assert words in error.what
    assert ("approx_count_distinct" in error.fix) == ("distinct" in result.lower())


@pytest.mark.capability("OP-AGG-02")
def test_aggregates_of_ones_own_made_of_sparks_run_in_a_stream(tmp_path: Path, spark: SparkSession) -> None:
    result = """
        readings.groupBy("sensorId").agg(spread("value").alias("spread"), product("value").alias("product"),
                                         F.approx_count_distinct("errorCode").alias("codes"))
    """
    root = project(tmp_path, OWN, READINGS, query(result, inputs="readings", mode="update", key=["sensorId"]))
    land_readings(root)
    played = play(root, spark, "SELECT * FROM q ORDER BY 1")
    assert [trigger.table for trigger in played.triggers] == [
        [("a", 2.0, 3.0, 1), ("b", 0.0, 10.0, 0)],
        [("a", 4.0, 15.0, 2), ("b", 0.0, 100.0, 1)],
    ]


@pytest.mark.capability("OP-AGG-02")
def test_a_batch_may_aggregate_by_a_python_function(tmp_path: Path, spark: SparkSession) -> None:
    result = 'readings.groupBy("sensorId").agg(middle("value"))'
    root = project(tmp_path, OWN, READINGS, query(result, inputs="readings", mode="update", key=["sensorId"]))
    land_readings(root)
    read = spark.read.schema("sensorId STRING, value DOUBLE, errorCode INT").json(str(root / "readings"))
    declared = load(root)
    answer = build(declared, declared.queries["q"].transform, spark, lambda source: read)
    assert sorted(map(tuple, answer.collect())) == [("a", 3.0), ("b", 10.0)]
