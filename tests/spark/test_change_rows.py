"""The rows that a function gives, with the change of each carried through its plan: filters, guards and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.contract import CHANGE_COLUMN, change_type
from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.change_rows import NotRowByRowError, carry_changes

pytestmark = pytest.mark.spark

Function = Callable[[DataFrame], DataFrame]


def changes(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """A change frame of customers: id, city, divisor, operation, sequence, and the columns that were not sent."""
    schema = f"id BIGINT, city STRING, divisor INT, {CHANGE_COLUMN} {change_type('BIGINT')}"
    given = [(key, city, by, (op, at, (0, at), lacks, None)) for key, city, by, op, at, lacks in rows]
    return spark.createDataFrame(given, schema)


def carry(frame: DataFrame, function: Function, *columns: str) -> list[dict[str, Any]]:
    """Run a function over the plain columns and return the rows that a sink gets, by their sequence."""
    rows = function(frame.select("id", "city", "divisor"))
    result = carry_changes(frame.sparkSession, rows, columns or rows.columns).frame
    flat = result.select(*[name for name in result.columns if name != CHANGE_COLUMN], f"{CHANGE_COLUMN}.*")
    return [row.asDict() for row in flat.orderBy("sequence").collect()]


def test_the_private_parts_of_spark_are_there(spark: SparkSession) -> None:
    jvm = jvm_of(spark)
    types, catalyst = jvm.org.apache.spark.sql.types.DataTypes, jvm.org.apache.spark.sql.catalyst.expressions
    text, nothing = catalyst.Literal.create("upsert", types.StringType), catalyst.Literal.create(None, types.LongType)
    assert str(catalyst.If(catalyst.EqualTo(text, text), nothing, nothing).sql()).startswith(
        "(IF(('upsert' = 'upsert')"
    )
    assert jvm.org.apache.spark.sql.classic.ExpressionUtils.column(nothing) is not None


@pytest.mark.capability("CDC-02")
def test_a_row_that_leaves_the_filter_is_a_delete_and_a_delete_is_never_filtered(spark: SparkSession) -> None:
    frame = changes(
        spark,
        (1, "Paris", 1, "upsert", 1, []),
        (1, "test", 1, "upsert", 2, []),
        (1, "Paris", 1, "upsert", 3, []),
        (1, None, None, "delete", 4, []),
        (2, None, 1, "upsert", 5, []),
        (None, None, None, "truncate", 6, []),
    )
    rows = carry(frame, lambda customers: customers.where("city <> 'test'"))
    assert [row["operation"] for row in rows] == ["upsert", "delete", "upsert", "delete", "delete", "truncate"]


def test_what_no_sink_gets_is_not_computed(spark: SparkSession) -> None:
    frame = changes(spark, (1, "a", 4, "upsert", 1, []), (2, "b", 0, "upsert", 2, []), (3, "c", 0, "delete", 3, []))
    rows = carry(
        frame,
        lambda customers: (
            customers.where("divisor <> 0")
            .withColumn("share", F.lit(8) / F.col("divisor"))
            .where(F.lit(1) / F.col("divisor") < 2)
        ),
        "id",
        "share",
    )
    assert [(row["id"], row["share"], row["operation"]) for row in rows] == [
        (1, 2.0, "upsert"),
        (2, None, "delete"),
        (3, None, "delete"),
    ]


def test_a_value_that_was_not_sent_is_named_by_the_columns_made_of_it(spark: SparkSession) -> None:
    frame = changes(spark, (1, None, 1, "upsert", 1, ["city"]), (2, "b", 1, "upsert", 2, []))
    rows = carry(frame, lambda c: c.select(c.id, F.upper(c.city).alias("CITY"), c.divisor, c.city.alias("town")))
    assert [row["unavailable"] for row in rows] == [["CITY", "town"], []]


def test_a_filter_over_a_value_that_was_not_sent_ends_the_batch(spark: SparkSession) -> None:
    frame = changes(spark, (1, None, 1, "upsert", 1, ["city"]))
    with pytest.raises(Exception, match="HEADRACE_UNAVAILABLE_IN_FILTER `city`"):
        carry(frame, lambda customers: customers.where("city <> 'test'"))


def test_keys_may_be_renamed_and_the_origin_of_each_column_is_known(spark: SparkSession) -> None:
    frame = changes(spark, (1, "a", 1, "upsert", 1, []))
    rows = frame.select("id", "city", "divisor").select(F.col("id").alias("key"), (F.col("id") + 1).alias("next"))
    origins = carry_changes(spark, rows, ["key"]).origins
    assert {name: (set(of.columns), of.is_plain) for name, of in origins.items()} == {
        "key": ({"id"}, True),
        "next": ({"id"}, False),
    }


@pytest.mark.parametrize(
    ("function", "why"),
    [
        pytest.param(lambda c: c.groupBy("id").count(), "groups rows", id="aggregate"),
        pytest.param(lambda c: c.join(c.select("id"), "id"), "joins rows", id="join"),
        pytest.param(lambda c: c.union(c), "unites rows", id="union"),
        pytest.param(lambda c: c.dropDuplicates(["id"]), "drops rows as duplicates", id="duplicates"),
        pytest.param(lambda c: c.select("id", F.explode(F.array("city"))), "makes several rows", id="generator"),
        pytest.param(lambda c: c.limit(1), "first rows", id="limit"),
        pytest.param(lambda c: c.orderBy("id"), "sorts rows", id="sort"),
    ],
)
def test_more_than_rows_one_by_one_is_refused_with_the_reason(
    spark: SparkSession, function: Function, why: str
) -> None:
    with pytest.raises(NotRowByRowError, match=why):
        carry(changes(spark, (1, "a", 1, "upsert", 1, [])), function, "id")


def test_a_subquery_is_refused(spark: SparkSession) -> None:
    frame = changes(spark, (1, "a", 1, "upsert", 1, []))
    frame.select("id", "city", "divisor").createOrReplaceTempView("changed_customers")
    rows = spark.sql("SELECT id FROM changed_customers WHERE id IN (SELECT 1)")
    with pytest.raises(NotRowByRowError, match="subquery"):
        carry_changes(spark, rows, ["id"])
