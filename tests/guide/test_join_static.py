"""Joins with bounded inputs: the guide's matrix for static and stream, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .join_scenes import query, refusals_of, scene, scene_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SHOWN = [[("a", "10:00"), ("c", "10:05")], [("b", "10:10")]]
ALL_TYPES = """
@hr.table
def prices(spark):
    return spark.sql("SELECT * FROM VALUES ('a', 1), ('b', 2), ('y', 3) AS t(i_ad, price)")

@hr.table
def joined(ads, prices):
    kinds = ("inner", "left", "right", "full", "leftsemi", "leftanti")
    frames = [ads.join(prices, "i_ad", kind).select(F.lit(kind).alias("kind"), "i_ad") for kind in kinds]
    frames.append(ads.crossJoin(prices.select("price")).select(F.lit("cross").alias("kind"), "i_ad"))
    result = frames[0]
    for frame in frames[1:]:
        result = result.union(frame)
    return result.groupBy("kind").agg(F.concat_ws(" ", F.sort_array(F.collect_list("i_ad"))).alias("ads"))
"""


@pytest.mark.capability("JOIN-SS-01")
def test_bounded_inputs_are_joined_by_every_type_inside_a_stream(tmp_path: Path, spark: SparkSession) -> None:
    body = "impressions.crossJoin(joined).select('i_ad', 'kind', 'ads')"
    made = scene(tmp_path, spark, "impressions, joined", body, extra=ALL_TYPES, impressions=[[("a", "10:00")]])
    made.run()
    assert dict(row[1:] for row in made.rows()) == {
        "inner": "a b",
        "left": "a b z",
        "right": "a b y",
        "full": "a b y z",
        "leftsemi": "a b",
        "leftanti": "z",
        "cross": "a a a b b b z z z",
    }


STREAM_STATIC: dict[str, list[tuple[Any, ...]] | str] = {
    "inner": [("a", "acme"), ("b", "bolt")],
    "left": [("a", "acme"), ("b", "bolt"), ("c", None)],
    "leftsemi": [("a",), ("b",)],
    "leftanti": [("c",)],
    "right": "put the stream on the side that keeps its rows",
    "full": "use a left outer join with the stream on the left",
}
STATIC_STREAM: dict[str, list[tuple[Any, ...]] | str] = {
    "inner": [("a", "acme"), ("b", "bolt")],
    "right": [("a", "acme"), ("b", "bolt"), ("c", None)],
    "left": "put the stream on the side that keeps its rows",
    "full": "use a left outer join with the stream on the left",
    "leftsemi": "put the stream on the side that keeps its rows",
    "leftanti": "put the stream on the left",
}
CELLS = {
    **{f"stream_{kind}": ("impressions.join(ads", kind, answer) for kind, answer in STREAM_STATIC.items()},
    **{f"table_{kind}": ("ads.join(impressions", kind, answer) for kind, answer in STATIC_STREAM.items()},
}


def query_text(cell: str) -> str:
    join, kind, _ = CELLS[cell]
    return query("impressions, ads", f"{join}, 'i_ad', '{kind}').drop('i_time')", name=cell)


@pytest.mark.capability("JOIN-ST-01", "JOIN-TS-01")
def test_a_stream_and_a_table_are_joined_without_a_state(tmp_path: Path, spark: SparkSession) -> None:
    answers = {cell: answer for cell, (*_, answer) in CELLS.items() if not isinstance(answer, str)}
    made = scene_of(tmp_path, spark, [query_text(cell) for cell in answers], impressions=SHOWN)
    assert made.findings("HR240", "HR275") == []
    batches = made.batches()
    assert {cell: made.rows(table=cell) for cell in answers} == answers
    assert [record.state_rows for record in batches] == [None] * 2 * len(answers)


@pytest.mark.capability("JOIN-ST-02", "JOIN-TS-02")
def test_a_join_that_would_have_to_keep_the_stream_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    fixes = {cell: answer for cell, (*_, answer) in CELLS.items() if isinstance(answer, str)}
    refusals = refusals_of(tmp_path, spark, [query_text(cell) for cell in fixes])
    assert {cell: refusal.code for cell, refusal in refusals.items()} == dict.fromkeys(fixes, "HR228")
    assert [cell for cell, refusal in refusals.items() if not refusal.fix.startswith(fixes[cell])] == []


@pytest.mark.capability("SRC-MANY-01")
def test_one_query_unites_two_streams_and_joins_a_third_and_a_table(tmp_path: Path, spark: SparkSession) -> None:
    body = (
        "plain_impressions.select(F.col('i_ad').alias('ad'), F.lit('shown').alias('what'))"
        ".unionByName(plain_clicks.select(F.col('c_ad').alias('ad'), F.lit('clicked').alias('what')))"
        ".join(purchases.select(F.col('p_ad').alias('ad'), F.date_format('p_time', 'HH:mm').alias('bought')), 'ad')"
        ".join(ads.withColumnRenamed('i_ad', 'ad'), 'ad', 'left').select('ad', 'what', 'bought', 'brand')"
    )
    made = scene(
        tmp_path,
        spark,
        "plain_impressions, plain_clicks, purchases, ads",
        body,
        impressions=[[("a", "10:00"), ("x", "10:00")], [("c", "10:20")]],
        clicks=[[("a", "10:05")]],
        purchases=[[], [], [("a", "11:00"), ("c", "12:00")]],
    )
    batches = made.batches()
    assert made.rows() == [
        ("a", "clicked", "11:00", "acme"),
        ("a", "shown", "11:00", "acme"),
        ("c", "shown", "12:00", None),
    ]
    rows = dict.fromkeys(("plain_impressions", "plain_clicks", "purchases"), 0)
    for record in batches:
        for source in record.sources:
            rows[source.name] += source.rows
    assert rows == {"plain_impressions": 3, "plain_clicks": 1, "purchases": 2}


@pytest.mark.capability("SRC-MANY-01")
def test_a_stream_and_a_table_are_not_united(tmp_path: Path, spark: SparkSession) -> None:
    body = "impressions.select('i_ad').union(ads.select('i_ad'))"
    assert scene(tmp_path, spark, "impressions, ads", body).refusal().code == "HR231"
