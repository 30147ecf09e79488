"""The cases of tests/*.yml, and `headrace test`."""

from __future__ import annotations

import json
import os
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
from headrace.testing.cases import read_cases, run_cases
from tests.rounds import rounds

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
    text = PROJECT.replace('postgres: {url: "${NOT_SET}"', "sqlite: {path: r.db")
    (tmp_path / "headrace.yml").write_text(text.replace("landing,", "landing, max_files_per_trigger: 1,"))
    (tmp_path / "landing").mkdir()
    project = hr.load(tmp_path)
    lines = [("ann", "12:10", 5), ("bob", "12:20", 7), ("ann", "12:50", 1)]
    for number, (customer, time, amount) in enumerate(lines):
        row = {"customer": customer, "time": f"2024-01-01T{time}:00Z", "amount": amount}
        file = tmp_path / "landing" / f"{number}.json"
        file.write_text(json.dumps(row) + "\n")
        os.utime(file, (1_700_000_000 + number,) * 2)
    assert hr.run(project, ["totals"], spark=spark, trigger=hr.available_now).exit_code == 0
    command = ["test", "-C", str(tmp_path), "--record", "totals"]
    assert main([*command, "--mask", "customer", "--json"]) == 0
    recorded = Path(json.loads(capsys.readouterr().out)["file"])
    text = recorded.read_text()
    assert recorded == tmp_path / "tests" / "totals.yml"
    assert "ann" not in text
    [case] = read_cases(project)
    assert case.batches == [
        {"orders": [[who, f"2024-01-01T{time}:00", str(amount)]]}
        for who, time, amount in (("m1", "12:10", 5), ("m2", "12:20", 7), ("m1", "12:50", 1))
    ]
    assert case.expect == [["m1", "2024-01-01T12:00:00", "6"], ["m2", "2024-01-01T12:00:00", "7"]]
    assert case.batch is True
    assert main([*command, "--batches", "1"]) == 0
    assert read_cases(project)[0].batches == [{"orders": [["ann", "2024-01-01T12:50:00", "1"]]}]
    assert main(["test", "-C", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("2 cases, 0 failed\n")
    assert main([*command, "--mask", "time"]) == 1
    assert main([*command, "--mask", "custom"]) == 1
    assert main(["test", "-C", str(tmp_path), "--record", "dear"]) == 1
    errors = capsys.readouterr().err
    for part in (
        "HR724: no case of query 'totals': column 'time' holds datetime values",
        "no column 'custom'",
        "it has committed no batch yet",
    ):
        assert part in errors
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
    printed = capsys.readouterr()
    assert re.findall(r"HR\d+", printed.err) == ["HR723"]
    assert re.findall("^(passed|failed) dear|no query is named 'dar'", printed.out, re.MULTILINE) == ["", "passed"]
    assert printed.out.count("passed") == 1


BASE = "tests:\n- {name: a, query: totals, GIVEN}\n"
ROWS = "given: {orders: []}, expect: []"
WRONG_ENTRIES = {
    "list": ("queries: []", None, "HR721", "it has no list 'tests'"),
    "no mapping": ("tests: [1]", 1, "HR721", "this entry is not a mapping"),
    "query": (BASE.replace("totals, GIVEN", f"total, {ROWS}"), 2, "HR721", "no query is named 'total'.*totals"),
    "query of two": (BASE.replace("totals, GIVEN", f"[totals], {ROWS}"), 2, "HR721", "`query` is not a text"),
    "no query": (f"tests:\n- {{{ROWS}}}\n", 2, "HR721", "no query is named 'None'"),
    "key": (BASE.replace("GIVEN", "give: {}, " + ROWS), 2, "HR721", "unknown key 'give'.*given"),
    "key of a number": (BASE.replace("GIVEN", "3: {}, " + ROWS), 2, "HR721", "unknown key '3'"),
    "key of a list": (BASE.replace("GIVEN", "[a]: {}, " + ROWS), 2, "HR101", "a key is not a text"),
    "key twice": (BASE.replace("GIVEN", "name: b, " + ROWS), 2, "HR109", "stands here and at line 2"),
    "input": (BASE.replace("GIVEN", "expect: []"), 2, "HR721", "needs one of `given` and `batches`"),
    "both inputs": (BASE.replace("GIVEN", "batches: [], " + ROWS), 2, "HR721", "needs one of `given` and `batches`"),
    "expect": (BASE.replace("GIVEN", "given: {}"), 2, "HR721", "expects nothing"),
    "late of given": (BASE.replace("GIVEN", "expect_late: [], " + ROWS), 2, "HR721", "none is late.*under `batches`"),
    "shape": (BASE.replace("GIVEN", "given: [], expect: []"), 2, "HR721", "`given` is not a mapping from sources"),
    "batch": (BASE.replace("GIVEN", "batch: maybe, " + ROWS), 2, "HR721", "`batch` is 'maybe'.*a SELECT"),
    "name": (BASE.replace("name: a", "name: [a]").replace("GIVEN", ROWS), 2, "HR721", "`name` is not a text"),
    "yaml": ("tests: [", 2, "HR101", "this is not valid YAML"),
    "tag": (BASE.replace("GIVEN", "given: !!python/none x"), 2, "HR101", "has no meaning here"),
    "alias of itself": ("tests: &a [*a]", 1, "HR101", "an alias contains itself"),
    "depth": ("tests: " + "[" * 5_000, 1, "HR101", "nested more than 60 deep"),
    "latin-1": (b"# caf\xe9\n", 1, "HR721", "it is not UTF-8 text"),
    "null": (b"tests: \0", None, "HR721", "it holds null characters"),
    "directory": (None, None, "HR721", "it is a directory"),
}


@pytest.mark.plain
@pytest.mark.parametrize(("text", "line", "code", "message"), WRONG_ENTRIES.values(), ids=WRONG_ENTRIES)
def test_a_wrong_case_fails_alone_and_says_where(
    project: Path, text: str | bytes | None, line: int | None, code: str, message: str
) -> None:
    file = project / "tests" / "a.yml"
    if text is None:
        file.mkdir()
    else:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    loaded = hr.load(project, may_lack_variables=True)
    at = "tests/a.yml" if line is None else f"tests/a.yml:{line}"
    with pytest.raises(ProjectError, match=rf"(?s)^{at} {code}.*{message}"):
        read_cases(loaded)
    [result] = run_cases(loaded)
    assert result.error.startswith(f"{at} {code}: ")
    assert not result.passed


UNFIT = {
    "a column of another type": (
        "given: {orders: [[ann, 12:10, 11]]}, expect: [[ann, twelve]]",
        "'twelve' is not of type int",
    ),
    "a row that is a text": ("given: {orders: [[ann, 12:10, 11]]}, expect: [ann]", "has 1 values, and the result 2"),
    "a row that is nothing": ("given: {orders: [[ann, 12:10, 11]]}, expect: [null]", "has 1 values, and the result 2"),
    "a row that lacks a column": ("given: {orders: [[ann, 12:10, 11]]}, expect: [[ann]]", "has 1 values"),
    "rows of different columns": (
        "given: {orders: [[ann, 12:10, 11]]}, expect: [{customer: ann}, {amount: 1}]",
        "has no column 'amount'",
    ),
    "a column that there is not": ("given: {orders: []}, expect: [{custom: ann}]", "a column 'custom'"),
    "rows that are a number": ("given: {orders: 5}, expect: []", "rows cannot be read from"),
    "a row that is a list of lists": ("given: {orders: [[[1], 12:10, {a: b}]]}, expect: []", "is not of type int"),
    "a source that there is not": ("given: {order: []}, expect: []", "reads no source 'order'"),
    "a refresh of self": ("batches: [orders: [], refresh: {self: []}], expect: []", "self"),
    "a watermark that is not a time": ("batches: [orders: [], watermark: {orders: noon}], expect: []", "noon"),
    "a watermark of nothing": ("batches: [orders: [], watermark: {orders: null}], expect: []", "HR721"),
    "a clock that is not a time": ("batches: [orders: [], clock: soon], expect: []", "soon"),
    "no batch and no event": ("batches: [5], expect: []", "'5' is neither a batch nor an event"),
    "an event before the first batch": ("batches: [crash], expect: []", "HR721"),
    "a key that there is not": ("batches: [orders: []], key: [nope], expect: []", "nope"),
}


@pytest.mark.spark
def test_each_case_that_does_not_fit_fails_alone_with_its_line(
    spark: SparkSession, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"- {{name: {name}, query: dear, {text}}}" for name, (text, _) in UNFIT.items()]
    right = "- {name: right, query: dear, given: {orders: [[ann, 12:10, 11]]}, expect: [[ann, 11]]}"
    (project / "tests" / "a.yml").write_text("\n".join(["tests:", *lines, right]))
    assert main(["test", "-C", str(project), "--json"]) == 1
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(result["case"], result["line"]) for result in results] == [
        (name, at) for at, name in enumerate([*UNFIT, "right"], 2)
    ]
    for result, (_, message) in zip(results, UNFIT.values(), strict=False):
        assert not result["passed"], result
        assert message in result["error"], result
        assert re.match(r"\S+:\d+ HR72\d: .*\n  fix: \S", result["error"]), result
    assert results[-1]["passed"]


@pytest.mark.plain
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mask", "a"], "--mask has no use without --record"),
        (["--batches", "2"], "--batches has no use without --record"),
        (["--seed", "2"], "--seed has no use without --fuzz"),
        (["--seconds", "2"], "--seconds has no use without --fuzz"),
        (["--record", "dear", "--watch"], "so --watch has no use"),
        (["--record", "dear", "--fuzz", "2"], "so --fuzz has no use"),
        (["--record", "dear", "--junit", "x"], "so --junit has no use"),
        (["--record", "dear", "totals"], "so QUERY has no use"),
        (["--record", "dear", "--mask", ","], "--mask: ',' names no column"),
        (["--junit", "DIR"], "it is a directory"),
        (["--junit", "DIR/none/x.xml"], "no such directory"),
    ],
    ids=" ".join,
)
def test_an_option_that_has_no_use_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (project / "tests" / "a.yml").write_text(BASE.replace("GIVEN", ROWS))
    assert main(["test", "-C", str(project), *(word.replace("DIR", str(project)) for word in arguments)]) == 2
    errors = capsys.readouterr().err
    assert "HR090" in errors
    assert message in errors


@pytest.mark.spark
@pytest.mark.parametrize("form", rounds(["python", "sql"]))
def test_a_new_project_has_a_case_that_passes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: Form
) -> None:
    write_project(tmp_path / "phones", form=form)
    assert main(["test", "-C", str(tmp_path / "phones")]) == 0
    assert capsys.readouterr().out.endswith("\n1 case, 0 failed\n")
