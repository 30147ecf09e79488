"""The answer of a query as a batch, over rows that a test gives."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import headrace as hr
from headrace.errors import CheckFailed, ProjectError
from headrace.testing import evaluate
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
EXAMPLES = ROOT / "examples"
ACTIONS = [("phone1", "01:10", "open"), ("phone2", "01:58", "open"), ("phone3", "01:58", "close")]
COUNTS = [("close", "01:00", 1), ("open", "01:00", 2)]


def of_example(name: str) -> hr.Project:
    return hr.load(EXAMPLES / name)


def test_a_query_in_sql_is_answered_without_its_database_and_its_files(spark: SparkSession) -> None:
    answer = evaluate(of_example("mobile-monitoring"), "counts_in_postgres", spark=spark, events=ACTIONS)
    assert answer == COUNTS
    assert answer["open", "01:00"].count == 2
    assert list(answer[0:1]) == [("close", datetime(2024, 1, 1, 1), 1)]


@pytest.mark.parametrize("form", ["dicts", "pandas", "json", "csv", "parquet"])
def test_rows_come_in_each_form(spark: SparkSession, tmp_path: Path, form: str) -> None:
    records = [
        dict(zip(("phone_id", "time", "action"), (phone, f"2024-01-01 {time}:00", action), strict=True))
        for phone, time, action in ACTIONS
    ]
    frame = pd.DataFrame(records).assign(time=lambda made: pd.to_datetime(made["time"]))
    file = tmp_path / f"rows.{form}"
    given: Any = file
    if form == "dicts":
        given = [{"time": "01:10", "action": "open"}, *records[1:]]
    elif form == "pandas":
        given = frame
    elif form == "json":
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif form == "csv":
        frame.to_csv(file, index=False)
    else:
        frame.to_parquet(file)
    assert evaluate(of_example("mobile-monitoring"), "counts_in_postgres", spark=spark, events=given) == COUNTS


def test_an_outer_join_gives_the_rows_that_no_other_followed(spark: SparkSession) -> None:
    answer = evaluate(
        of_example("outer-join"),
        "shown",
        spark=spark,
        impressions=[("ad1", "12:00"), ("ad2", "12:00")],
        clicks=[("ad1", "12:30"), ("ad1", "14:30")],
    )
    assert answer == [("ad1", "12:00", "12:30"), ("ad2", "12:00", None)]


def test_duplicates_within_the_watermark_are_left_out(spark: SparkSession) -> None:
    answer = evaluate(
        of_example("deduplication"), "events_once", spark=spark, events=[("a", "12:00"), ("a", "12:00"), ("b", "12:01")]
    )
    assert answer == [("a", "12:00"), ("b", "12:01")]


def test_sessions_are_all_closed(spark: SparkSession) -> None:
    visits = [("12:00:00", "user1"), ("12:00:04", "user1"), ("12:00:30", "user1")]
    answer = evaluate(of_example("session-windows"), "sessions", spark=spark, visits=visits)
    assert answer.only(["since", "count"]) == [("12:00:00", 2), ("12:00:30", 1)]


def test_a_source_without_rows_is_empty(spark: SparkSession) -> None:
    assert evaluate(of_example("windowed-counts"), "counts", spark=spark) == []


def test_a_source_may_be_called_as_an_argument_is_and_a_table_is_given(spark: SparkSession, tmp_path: Path) -> None:
    files = '{files: {path: landing, format: json, schema: "who STRING, price INT"}}'
    (tmp_path / "headrace.yml").write_text(
        f"name: named\nsources: {{spark: {files}, project: {files}}}\n"
        "tables: {rates: {select: \"SELECT 'a' AS who, 2 AS rate\"}}\n"
        "queries: {q: {select: SELECT spark.price * rate AS cost FROM spark JOIN rates USING (who),"
        " sink: {console: {}}}}\n"
    )
    project = hr.load(tmp_path)
    assert evaluate(project, "q", spark=spark, given={"spark": [("a", 5)]}) == [(10,)]
    assert evaluate(project, "q", spark=spark, given={"spark": [("a", 5)], "rates": [("a", 3)]}) == [(15,)]


def test_a_state_function_has_no_batch_form(spark: SparkSession) -> None:
    with pytest.raises(CheckFailed, match=r"HR722.*has no batch form"):
        evaluate(of_example("transform-with-state"), "sensors", spark=spark, readings=[("a", "12:00")])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"events": [{"phone": "phone1"}]}, "HR720.*source 'events': it has no column 'phone'.*phone_id"),
        ({"events": [("phone1", "noon", "open")]}, "HR720.*'noon' is not of type timestamp for column 'time'"),
        ({"events": [("phone1", "12:00", "open", 1)]}, "HR720.*has 4 values for 3 columns"),
        ({"events": "lacking.json"}, "HR720.*cannot be read from"),
        ({"event": []}, "HR721.*reads no source 'event'.*events"),
    ],
    ids=["column", "value", "width", "file", "source"],
)
def test_rows_that_do_not_fit_are_refused(spark: SparkSession, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ProjectError, match=f"(?s){message}"):
        evaluate(of_example("mobile-monitoring"), "counts_in_postgres", spark=spark, **given)
