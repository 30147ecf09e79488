"""What a query reads is asked for before a start, each source once; and what it keeps is described in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load
from headrace.connectors.rate.source import Rate
from headrace.errors import Finding, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PROJECT = """\
name: p
sources:
  orders: {rate: {rows_per_second: 1}}
queries:
  one: {select: SELECT value FROM orders, sink: console}
  two: {select: SELECT value FROM orders, sink: console}
  by_key:
    select: >
      SELECT value % 10 AS key, date_trunc('hour', timestamp) AS hour, first(value + 1) AS a, collect_list(value) AS b
      FROM orders GROUP BY value % 10, date_trunc('hour', timestamp)
    mode: update
    sink: console
"""


@dataclass(frozen=True, kw_only=True)
class Gone(Rate):
    """A source whose system answers, and has nothing of that name."""

    asked: list[str] = field(default_factory=list, compare=False)

    def check_connection(self, spark: SparkSession) -> None:
        self.asked.append("once")
        raise SourceError(Finding(code="HR332", what="there is no topic 'orders' at kafka:9092", fix="create it"))


@dataclass(frozen=True, kw_only=True)
class Counted(Rate):
    """A source that lists the streams that are made of it."""

    made: list[str] = field(default_factory=list, compare=False)

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        self.made.append(name)
        return super().stream(spark, name)


def errors_in(findings: Iterator[Finding]) -> list[tuple[str, int | None, str]]:
    return [(finding.code, finding.where.line, finding.what) for finding in findings if finding.severity == "error"]


def test_a_source_that_is_not_there_is_reported_once_at_its_line(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "headrace.yml").write_text(PROJECT)
    project, gone = load(tmp_path, environ={}), Gone(rows_per_second=1)
    project = replace(project, sources={"orders": replace(project.sources["orders"], connector=gone)})
    result = check(project, ["one", "two"], spark=spark)
    assert errors_in(iter(result.findings)) == [
        ("HR332", 3, "source 'orders': there is no topic 'orders' at kafka:9092")
    ]
    assert (result.exit_code, gone.asked) == (1, ["once"])
    assert errors_in(iter(check(project, ["one"], spark=spark, connect=False).findings)) == []


def test_what_is_kept_and_what_goes_by_the_order_of_rows_is_named_as_in_sql(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "headrace.yml").write_text(PROJECT)
    result = check(load(tmp_path, environ={}), ["by_key"], spark=spark)
    (state,) = result.states["by_key"]
    assert state.by == ("(value % CAST(10 AS BIGINT))", "date_trunc('hour', timestamp)")
    (order,) = [finding.what for finding in result.findings if finding.code == "HR641"]
    assert "by first((value + CAST(1 AS BIGINT))), collect_list(value): each row" in order


SETTING = """
import headrace as hr

orders = hr.source.rate(rows_per_second=1)


@hr.query(sink=hr.sink.console())
def first(orders):
    return orders


@hr.query(sink=hr.sink.console())
def second(orders, spark):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return orders


@hr.query(sink=hr.sink.console())
def third(orders):
    return orders
"""


def test_queries_share_the_stream_of_a_source_unless_one_of_them_changes_a_setting(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "headrace.yml").write_text("name: p\n")
    (tmp_path / "pipeline.py").write_text(SETTING)
    project, counted = load(tmp_path, environ={}), Counted(rows_per_second=1)
    project = replace(project, sources={"orders": replace(project.sources["orders"], connector=counted)})
    assert [finding.code for finding in check(project, spark=spark).errors] == []
    assert counted.made == ["orders", "orders"]
