"""The cases of tests/*.yml, and `headrace test`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

import headrace as hr
from headrace.cli import main
from headrace.demo.starter import Form, write_project
from headrace.errors import ProjectError
from headrace.testing import recording
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
    behind = rows.index("rows of 'orders' with customer=ann")
    assert rows[behind + 1] == "Row(customer='ann', time='2024-01-01 12:10:00', amount=5)"
    assert "no row of 'orders' with customer=bob" in rows
    suite = ElementTree.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert [case.get("name") for case in suite] == ["wrong", "unfit"]
    assert main(["test", "dear", "-C", str(project), "--json"]) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert (json.loads(line)["case"], json.loads(line)["passed"]) == ("unfit", False)


@pytest.mark.spark
@pytest.mark.parametrize("no_colour", ["", "1"], ids=["coloured", "NO_COLOR"])
def test_a_difference_is_coloured_on_a_terminal(
    spark: SparkSession,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_colour: str,
) -> None:
    (project / "tests" / "dear.yml").write_text(
        "tests: [{query: dear, given: {orders: [[ann, 12:10, 11]]}, expect: [[ann, 12]]}]"
    )
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert main(["test", "-C", str(project)]) == 1
    assert ("\x1b[32mcustomer=ann, amount=12\x1b[0m" in capsys.readouterr().out) == (not no_colour)


@pytest.mark.plain
def test_a_project_without_cases_passes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "-C", str(project)]) == 1
    assert re.search(r"HR723.*nothing was tested.*\n  fix: .*--record QUERY", capsys.readouterr().err)


@pytest.mark.spark
def test_a_query_without_cases_is_not_passed_by_another(
    spark: SparkSession, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "tests" / "dear.yml").write_text("tests: [{query: dear, given: {}, expect: []}]")
    assert main(["test", "dear", "totals", "-C", str(project)]) == 1
    assert "HR723: nothing was tested: no case of totals" in capsys.readouterr().err


EVENTS = """
tests:
  - name: tables and clocks
    query: bills
    batches:
      - refresh: {prices: [{product: milk, price: "1"}]}
      - sales: [[milk, 2]]
      - clock: +5 min
      - pause
      - refresh: {prices: [[milk, 3]]}
      - sales: [[milk, 2]]
    batch: "false"
    expect: [[2], [6]]
  - name: its meaning
    query: bills
    batches: [sales: [[milk, 2]]]
    batch: SELECT amount * 5 AS cost FROM sales
    expect: [[10]]
"""


@pytest.mark.spark
def test_a_case_has_events_and_a_meaning_as_a_batch(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "headrace.yml").write_text(
        "name: shop\n"
        'sources: {sales: {files: {path: landing, format: json, schema: "product STRING, amount INT"}}}\n'
        "tables: {prices: {select: \"SELECT 'milk' AS product, 5 AS price\"}}\n"
        "queries: {bills: {select: SELECT amount * price AS cost FROM sales JOIN prices USING (product),"
        " sink: {console: {}}}}\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "bills.yml").write_text(EVENTS)
    assert main(["test", "-C", str(tmp_path)]) == 0, capsys.readouterr()


@pytest.mark.spark
def test_a_case_is_recorded_with_masked_values_and_passes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headrace.yml").write_text(PROJECT.replace('postgres: {url: "${NOT_SET}"', "sqlite: {path: r.db"))
    (tmp_path / "landing").mkdir()
    project = hr.load(tmp_path)
    lines = [("ann", "12:10", 5), ("bob", "12:20", 7), ("ann", "12:50", 1)]
    for number, (customer, time, amount) in enumerate(lines):
        row = {"customer": customer, "time": f"2024-01-01T{time}:00Z", "amount": amount}
        (tmp_path / "landing" / f"{number}.json").write_text(json.dumps(row) + "\n")
        hr.run(project, ["totals"], spark=spark, trigger=hr.available_now)
    command = ["test", "-C", str(tmp_path), "--record", "totals"]
    assert main([*command, "--mask", "customer", "--json"]) == 0
    recorded = Path(json.loads(capsys.readouterr().out)["file"])
    text = recorded.read_text()
    assert recorded == tmp_path / "tests" / "totals.yml"
    assert "ann" not in text
    [case] = cases(project)
    assert case.batches == [
        {"orders": [[who, f"2024-01-01T{time}:00", str(amount)]]}
        for who, time, amount in (("m1", "12:10", 5), ("m2", "12:20", 7), ("m1", "12:50", 1))
    ]
    assert case.expect == [["m1", "2024-01-01T12:00:00", "6"], ["m2", "2024-01-01T12:00:00", "7"]]
    assert case.batch is True
    assert main([*command, "--batches", "1"]) == 0
    assert cases(project)[0].batches == [{"orders": [["ann", "2024-01-01T12:50:00", "1"]]}]
    assert main(["test", "-C", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("2 cases, 0 failed\n")
    assert main([*command, "--mask", "time"]) == 1
    assert main([*command, "--mask", "custom"]) == 1
    assert main(["test", "-C", str(tmp_path), "--record", "dear"]) == 1
    said = capsys.readouterr().err
    for part in (
        "HR724: no case of query 'totals': column 'time' holds datetime values",
        "no column 'custom'",
        "it has committed no batch yet",
    ):
        assert part in said
    monkeypatch.setattr(recording, "MOST_ROWS", 0)
    for batches, says in (
        ("3", "its newest 3 batches have more than 0 rows, too many for a case\n  fix: record fewer: --batches 1"),
        (
            "1",
            "newest batch has more than 0 rows, too many for a case\n  fix: bound a batch by its source's rate limit",
        ),
    ):
        assert main([*command, "--batches", batches]) == 1
        assert says in capsys.readouterr().err


@pytest.mark.spark
def test_cases_run_again_when_a_file_changes(
    spark: SparkSession, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = "tests: [{query: dear, given: {orders: [[ann, 12:10, 11]]}, expect: [[ann, 11]]}]"
    written = iter([case.replace("dear", "dar"), case, "stop"])

    def save(_seconds: float) -> None:
        if (text := next(written)) == "stop":
            raise KeyboardInterrupt
        (project / "tests" / "dear.yml").write_text(text)

    monkeypatch.setattr("headrace.cli.test.time", SimpleNamespace(sleep=save))
    assert main(["test", "-C", str(project), "--watch"]) == 130
    told = capsys.readouterr()
    assert re.findall(r"HR\d+", told.err) == ["HR723", "HR721"]
    assert told.out.startswith("passed dear")
    assert told.out.count("passed") == 1


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
