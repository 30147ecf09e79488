"""Mistakes that fuzzing finds, and sound queries in which it finds none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.testing import fuzz

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
EVENTS = [("a", "12:00", 1.5), ("b", "12:04", 2.0), ("a", "12:08", 3.0), ("b", "12:31", 4.0), ("a", "13:05", 5.0)]
HEAD = """
import headrace as hr
from pyspark.sql import DataFrame, functions as F

events = hr.source.files("landing", format="json", schema="who STRING, time TIMESTAMP, price DOUBLE",
                         watermark=("time", "10 minutes"))

"""
MISTAKES = {
    "rand": """
@hr.query(sink=hr.sink.console(), mode="append")
def mistake(events: DataFrame) -> DataFrame:
    return events.select("who", F.rand().alias("chance"))
""",
    "first": """
@hr.query(sink=hr.sink.sqlite("r.db", table="t", key=["who"]), mode="update")
def mistake(events: DataFrame) -> DataFrame:
    return events.groupBy("who").agg(F.first("price").alias("price"))
""",
}


def of(tmp_path: Path, text: str) -> hr.Project:
    (tmp_path / "headrace.yml").write_text("name: fuzzed\n")
    (tmp_path / "pipeline.py").write_text(HEAD + text)
    return hr.load(tmp_path)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(spark: SparkSession, tmp_path: Path, mistake: str) -> None:
    result = fuzz(of(tmp_path, MISTAKES[mistake]), "mistake", spark=spark, seed=1, seconds=30, events=EVENTS)
    assert "the result of query 'mistake' is not" in result.failure
    assert result.schedule is not None
    assert result.schedule.size <= 3
    assert "def test_mistake_over_these_batches(timeline):" in result.described()
