"""A rebuilt result is compared by value, whatever the types of its columns are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.changes.comparison import compare_results
from headrace.contract import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NOT_COMPARED = "the values of column 'v' are not compared"


@pytest.mark.parametrize(
    ("before", "after", "different", "not_compared"),
    [
        pytest.param("CAST(id AS DECIMAL(22,2))", "CAST(id AS DECIMAL(24,2))", 0, False, id="wider decimals"),
        pytest.param("CAST(id AS DECIMAL(22,2))", "CAST(id + 1 AS DECIMAL(24,4))", 75, False, id="other values"),
        pytest.param("CAST(id AS INT)", "id", 0, False, id="whole numbers"),
        pytest.param("CAST(id AS INT)", "CAST(id AS DOUBLE) / 2", 74, False, id="a number and a double"),
        pytest.param("CAST(id / 3 AS FLOAT)", "id / CAST(3 AS DOUBLE)", 0, False, id="float and double"),
        pytest.param("CAST(id AS STRING)", "id", 0, True, id="text and number"),
        pytest.param("CAST(1 AS DECIMAL(38,0))", "CAST(1 AS DECIMAL(38,38)) / 2", 0, True, id="too many digits"),
    ],
)
def test_columns_of_another_type_are_compared_by_value_or_named_as_not_compared(
    spark: SparkSession, before: str, after: str, different: int, not_compared: bool
) -> None:
    there, made = (
        Snapshot(rows=spark.range(75).selectExpr("id AS k", f"{value} AS v"), batch=0, key=("k",))
        for value in (before, after)
    )
    comparison = compare_results(there, made)
    assert (comparison.rows_before, comparison.rows_after, comparison.different) == (75, 75, different)
    assert (comparison.only_before, comparison.only_after) == (0, 0)
    assert (NOT_COMPARED in comparison.columns) is not_compared
    assert any("column 'v' is" in sentence for sentence in comparison.columns)


def test_a_key_of_another_type_still_finds_the_row(spark: SparkSession) -> None:
    there = Snapshot(rows=spark.range(75).selectExpr("CAST(id AS INT) AS k", "id AS v"), batch=0, key=("k",))
    made = Snapshot(rows=spark.range(75).selectExpr("id AS k", "id + 1 AS v"), batch=0, key=("k",))
    assert compare_results(there, made).different == 75
