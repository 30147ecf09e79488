"""Two DataFrames compared as multisets of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import Snapshot
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.plans.plan_text import metric
from headrace.verifier.comparison import compare, find_corrections, schema_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("ddl", "expected", "actual", "key", "counts"),
    [
        pytest.param("a INT", [(1,), (1,)], [(1,)], (), (1, 0, 0), id="a row twice is not a row once"),
        pytest.param("a INT, b INT", [(None, 1)], [(None, 1)], ("a",), (0, 0, 0), id="NULL equals NULL"),
        pytest.param("a INT, b INT", [(None, 1)], [(None, None)], ("a",), (0, 0, 1), id="NULL is not a value"),
        pytest.param(
            "a INT, b DOUBLE",
            [(1, NAN), (2, NAN), (3, INFINITY), (4, INFINITY), (5, INFINITY)],
            [(1, NAN), (2, 1.0), (3, INFINITY), (4, -INFINITY), (5, 1e300)],
            (),
            (0, 0, 3),
            id="NaN and infinities are equal to themselves alone",
        ),
        pytest.param("a DOUBLE", [(0.1 + 0.2,), (5.0,)], [(5.0,), (0.3,)], (), (0, 0, 0), id="only doubles"),
        pytest.param("a FLOAT", [(0.1,)], [(0.10001,)], (), (0, 0, 1), id="floats apart"),
        pytest.param("a INT, b INT", [(1, 1)], [(1, 2)], (), (1, 1, 0), id="no key, nothing to pair by"),
        pytest.param(
            "a INT, b ARRAY<DOUBLE>",
            [(1, [0.1 + 0.2]), (2, [0.3])],
            [(1, [0.3]), (2, [0.3, 1.0])],
            (),
            (0, 0, 1),
            id="in an array, and a longer one",
        ),
        pytest.param(
            "a INT, b STRUCT<c: DOUBLE, d: STRING>",
            [(1, (0.1 + 0.2, "x"))],
            [(1, (0.3, "x"))],
            (),
            (0, 0, 0),
            id="in a struct",
            marks=pytest.mark.long,
        ),
        pytest.param("m MAP<STRING, INT>", [({"a": 1, "b": 2},)], [({"b": 2, "a": 1},)], (), (0, 0, 0), id="a map"),
        pytest.param(
            "m MAP<STRING, INT>", [({"a": 1},)], [({"a": 2},)], (), (0, 0, 1), id="another map", marks=pytest.mark.long
        ),
        pytest.param(
            "a INT, m ARRAY<MAP<STRING, INT>>",
            [(1, [{"a": 1}])],
            [(1, [{"a": 2}])],
            ("a",),
            (0, 0, 1),
            id="maps within",
        ),
        pytest.param(
            "a STRING COLLATE UTF8_LCASE", [("a",), ("b",)], [("A",), ("b",)], (), (1, 1, 0), id="texts of a collation"
        ),
        pytest.param(
            "a STRING COLLATE UTF8_LCASE, b MAP<STRING, ARRAY<STRUCT<c: STRING COLLATE UTF8_LCASE>>>",
            [("a", {"k": [("x",)]}), ("b", {"k": [("y",)]})],
            [("a", {"k": [("x",)]}), ("b", {"k": [("Y",)]})],
            ("a",),
            (0, 0, 1),
            id="texts of a collation within",
        ),
        pytest.param("`a b` INT, `c.d` INT", [(1, 2)], [(1, 3)], ("a b",), (0, 0, 1), id="names with blanks and dots"),
    ],
)
def test_rows_are_compared(
    ddl: str,
    expected: list[Any],
    actual: list[Any],
    key: tuple[str, ...],
    counts: tuple[int, int, int],
    spark: SparkSession,
) -> None:
    comparison = compare(spark.createDataFrame(expected, ddl), spark.createDataFrame(actual, ddl), key)
    assert (comparison.missing, comparison.unexpected, comparison.different) == counts
    assert (comparison.rows_expected, comparison.rows_actual) == (len(expected), len(actual))
    assert comparison.equal == (sum(counts) == 0)


def test_what_puts_a_result_right_is_no_more_than_what_differs(spark: SparkSession) -> None:
    ddl = "a INT, b DOUBLE"
    # A sum that was added in another order; a row under no key; a row that lacks, one that is wrong, one too many.
    expected = spark.createDataFrame([(1, 0.1 + 0.2), (None, 1.0), (2, 2.0), (3, 3.0)], ddl)
    held = spark.createDataFrame([(1, 0.3), (None, 9.0), (3, 9.0), (4, 4.0)], ddl)
    with find_corrections(expected, Snapshot(rows=held, batch=0, key=("a",))) as (rows, deletes):
        assert {tuple(row) for row in rows.collect()} == {(None, 1.0), (2, 2.0), (3, 3.0)}
        # A row that is written takes the place of the one of its key, NULL too.
        assert [tuple(row) for row in deletes.collect()] == [(4,)]


def test_at_most_twenty_rows_are_kept_and_all_are_counted(spark: SparkSession) -> None:
    comparison = compare(spark.range(100), spark.range(50, 130))
    assert (comparison.missing, comparison.unexpected, len(comparison.differences)) == (50, 30, 20)


@pytest.mark.parametrize("replans", ["true", "false"])
def test_what_was_observed_below_is_counted_though_the_differing_rows_are_kept(
    spark: SparkSession, replans: str
) -> None:
    from pyspark.sql import functions as F

    with apply_settings(spark, {"spark.sql.adaptive.enabled": replans}):
        expected = spark.range(100).observe("below", F.count(F.lit(1)).alias("rows")).groupBy("id").count()
        comparison = compare(expected, spark.range(50, 130).groupBy("id").count())
        assert (comparison.rows_expected, comparison.rows_actual, comparison.missing, comparison.unexpected) == (
            100,
            80,
            50,
            30,
        )
        assert metric(comparison.executed, "below") == 100


def test_schemas_differ_by_names_and_types(spark: SparkSession) -> None:
    wanted, held = (
        spark.createDataFrame([], ddl).schema for ddl in ("a INT, b INT NOT NULL, c INT", "c INT, b LONG, d INT")
    )
    assert schema_differences(wanted, held) == (
        "column 'a' is missing in the sink",
        "the sink has a column 'd' that the query has not",
        "column 'b' is bigint in the sink and int in the query",
    )


@pytest.mark.parametrize(
    ("ddl", "expected", "actual"),
    [
        pytest.param("a INT, b INT", [(None, 1)], [(1, None)], id="a NULL in another column"),
        pytest.param(
            "a STRING, b STRING", [("ab", "c")], [("a", "bc")], id="text cut elsewhere", marks=pytest.mark.long
        ),
        pytest.param("a STRING, b STRING", [("", None)], [(None, "")], id="NULL is not empty"),
        pytest.param(
            "a STRUCT<x: INT, y: INT>",
            [((None, 1),)],
            [((1, None),)],
            id="a NULL in another field",
            marks=pytest.mark.long,
        ),
        pytest.param("a STRUCT<x: INT>", [((None,),)], [(None,)], id="a struct of NULL is not NULL"),
        pytest.param("a INT", [(1,), (2,), (2,)], [(1,), (1,), (2,)], id="another of two rows twice"),
        pytest.param("a INT", [], [(1,)], id="nothing expected", marks=pytest.mark.long),
        pytest.param("a INT", [(1,)], [], id="nothing there", marks=pytest.mark.long),
        pytest.param(
            "a BIGINT, b BIGINT",
            [(1, 2), (3, 4)],
            [(1, 4), (3, 2)],
            id="values of two rows exchanged",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_hashes_of_other_rows_differ(ddl: str, expected: list[Any], actual: list[Any], spark: SparkSession) -> None:
    comparison = compare(spark.createDataFrame(expected, ddl), spark.createDataFrame(actual, ddl))
    assert not comparison.equal
    assert (comparison.rows_expected, comparison.rows_actual) == (len(expected), len(actual))


def test_the_hashes_of_the_same_rows_in_another_order_are_equal(spark: SparkSession) -> None:
    ddl = "a STRING, b STRUCT<x: INT, y: INT>"
    rows = [("ab", (None, 1)), ("", None), (None, (1, None)), (None, (1, None))]
    assert compare(spark.createDataFrame(rows, ddl), spark.createDataFrame(rows[::-1], ddl)).equal
