"""The cases of tests/*.yml, and `headrace test`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

import headrace as hr
from headrace.cli import main
from headrace.demo.starter import Form, write_project
from headrace.errors import ProjectError
from headrace.testing.cases import cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """
name: shop
sources:
  orders:
    files: {path: landing, format: json, schema: "customer STRING, time TIMESTAMP, amount INT"}
    watermark: {column: time, delay: 10 minutes}
queries:
  totals:
    select: >
      SELECT customer, window.start AS hour, sum(amount) AS total FROM orders
      GROUP BY customer, window(time, '1 hour')
    mode: update
    sink: {postgres: {url: "${NOT_SET}", table: totals, key: [customer, hour]}}
  dear:
    select: SELECT customer, amount FROM orders WHERE amount > 10
    sink: {console: {}}
"""
CASES = """
tests:
  - name: amounts add up over a crash
    query: totals
    batches:
      - orders: [[ann, 12:10, 5], [bob, 12:20, null]]
      - crash
      - orders: [{customer: ann, time: 12:50, amount: 7}]
      - watermark: {orders: "13:30"}
      - orders: [[ann, 12:55, 100]]
    expect:
      - [ann, 12:00, 12]
      - [bob, 12:00, null]
    expect_late: [[ann, 12:55, 100]]
  - name: small orders are left out
    query: dear
    given: {orders: [[ann, 12:10, 11], [bob, 12:20, 10]]}
    expect: [{customer: ann}]
"""
WRONG = """
tests:
  - name: wrong
    query: totals
    batches: [orders: [[ann, 12:10, 5], [eve, 12:10, 1]]]
    expect: [[ann, 12:00, 6], [bob, 12:00, 1]]
  - name: unfit
    query: dear
    given: {orders: [[ann, noon, 1]]}
    expect: []
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "headrace.yml").write_text(PROJECT)
    (tmp_path / "tests").mkdir()
    return tmp_path


@pytest.mark.spark
def test_cases_pass_without_the_database(
    spark: SparkSession, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "tests" / "totals.yml").write_text(CASES)
    assert main(["test", "-C", str(project)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" (")[0] for line in lines[:2]] == [
        "passed totals: amounts add up over a crash",
        "passed dear: small orders are left out",
    ]
    assert lines[2:] == ["2 cases, 0 failed"]


@pytest.mark.spark
def test_a_difference_is_a_table_by_key(spark: SparkSession, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tests" / "totals.yml").write_text(WRONG)
    report = project / "report.xml"
    assert main(["test", "-C", str(project), "--junit", str(report)]) == 1
    printed = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in printed.splitlines()]
    assert "different customer=ann, hour=2024-01-01 12:00:00 total=6 total=5" in rows
    assert "missing customer=bob, hour=2024-01-01 12:00:00 total=1 -" in rows
    assert "unexpected customer=eve, hour=2024-01-01 12:00:00 - total=1" in rows
    assert "HR720" in printed
    assert rows[-1] == "2 cases, 2 failed"
    suite = ElementTree.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert [case.get("name") for case in suite] == ["wrong", "unfit"]
    assert main(["test", "dear", "-C", str(project), "--json"]) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert (json.loads(line)["case"], json.loads(line)["passed"]) == ("unfit", False)


@pytest.mark.plain
def test_a_project_without_cases_passes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "-C", str(project)]) == 1
    assert capsys.readouterr().out == "no case in tests/*.yml\n"


@pytest.mark.plain
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queries: []", "it has no list 'tests'"),
        ("tests: [{name: a, query: total, given: {}, expect: []}]", "no query is named 'total'.*totals"),
        ("tests: [{name: a, query: totals, give: {}}]", "unknown key 'give'.*given"),
        ("tests: [{name: a, query: totals, expect: []}]", "needs one of `given` and `batches`"),
        ("tests: [{name: a, query: totals, given: {}}]", "expects nothing"),
        ("tests: [{name: a, query: totals, given: [], expect: []}]", "`given` is no dict"),
        ("tests: [", "it cannot be read"),
    ],
    ids=["list", "query", "key", "input", "expect", "shape", "yaml"],
)
def test_a_wrong_case_says_where(project: Path, text: str, message: str) -> None:
    (project / "tests" / "a.yml").write_text(text)
    with pytest.raises(ProjectError, match=rf"(?s)tests/a.yml HR721.*{message}"):
        cases(hr.load(project, may_lack_variables=True))


@pytest.mark.spark
@pytest.mark.parametrize("form", ["python", "sql"])
def test_a_new_project_has_a_case_that_passes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: Form
) -> None:
    write_project(tmp_path / "phones", form=form)
    assert main(["test", "-C", str(tmp_path / "phones")]) == 0
    assert capsys.readouterr().out.endswith("\n1 case, 0 failed\n")
