"""The foreach sink calls the user's function or object as the guide says, and reports what it cannot call."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import check, load, run
from headrace.connectors.foreach.sink import Foreach
from headrace.contract import OutputMode
from headrace.errors import Finding
from headrace.testing.conformance import forget_commit
from tests.registered import layout_in
from tests.runner.projects import land, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FRUIT = [[{"name": "apple", "amount": 1}, {"name": "pear", "amount": 2}], [{"name": "apple", "amount": 3}]]

AUDIT = """
import json, os


class Audit:
    def __init__(self, path, skips=()):
        self.path, self.skips = path, skips

    def record(self, *what):
        with open(self.path, "a") as file:
            file.write(json.dumps(what) + "\\n")

    def open(self, partition_id, epoch_id):
        self.at = (epoch_id, partition_id)
        self.record("open", *self.at)
        return epoch_id not in self.skips

    def process(self, row):
        if row["amount"] == 13:
            raise ValueError("an unlucky amount")
        self.record("process", *self.at, *row)

    def close(self, error):
        self.record("close", *self.at, None if error is None else str(error))

    def __call__(self, row):
        raise TypeError("an object with process is not a function")
"""

QUERY = """
@hr.query(sink=hr.sink.foreach(Audit("LOG")), trigger=hr.available_now)
def q(events):
    return events.select("name", "amount")
"""


def calls(root: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (root / "log").read_text().splitlines()]


def project(root: Path, query: str = QUERY, batches: Any = FRUIT) -> Path:
    return write_project(root, (AUDIT + query).replace("LOG", str(root / "log")), batches=batches)


def failure_of(root: Path, spark: SparkSession) -> Finding:
    (end,) = run(load(root), spark=spark).outcomes
    assert end.state == "failed"
    assert end.finding is not None
    assert "\n" not in end.finding.what
    return end.finding


@pytest.mark.capability("SINK-FOREACH-01")
def test_an_object_is_opened_fed_and_closed_for_each_partition_of_each_batch(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = project(tmp_path / "p")
    loaded = load(root)
    assert run(loaded, spark=spark).exit_code == 0
    first = [["open", 0, 0], ["process", 0, 0, "apple", 1], ["process", 0, 0, "pear", 2], ["close", 0, 0, None]]
    second = [["open", 1, 0], ["process", 1, 0, "apple", 3], ["close", 1, 0, None]]
    assert calls(root) == first + second
    guarantee = check(loaded, spark=spark).guarantees["q"]
    assert (guarantee.level, guarantee.sentence) == (
        "at least once",
        "at least once: the sink foreach takes a batch again when the driver dies before it is committed",
    )
    forget_commit(layout_in(loaded.storage, "q").checkpoint)
    assert run(loaded, spark=spark).exit_code == 0
    assert calls(root) == first + second + second


@pytest.mark.capability("SINK-FOREACH-01")
def test_rows_are_processed_only_if_open_returns_true_and_close_is_called_in_any_case(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = project(tmp_path / "p", QUERY.replace('"LOG"', '"LOG", skips=[0]'))
    land(root, 2, [{"name": "fig", "amount": 4}, {"name": "nut", "amount": 13}, {"name": "plum", "amount": 5}])
    finding = failure_of(root, spark)
    assert calls(root)[:5] == [
        ["open", 0, 0],
        ["close", 0, 0, None],
        ["open", 1, 0],
        ["process", 1, 0, "apple", 3],
        ["close", 1, 0, None],
    ]
    assert calls(root)[5:8] == [["open", 2, 0], ["process", 2, 0, "fig", 4], ["close", 2, 0, "an unlucky amount"]]
    assert (finding.code, finding.what) == ("HR601", "query 'q' failed: ValueError: an unlucky amount")
    assert finding.where.line is not None
    assert "raise ValueError" in (root / "pipeline.py").read_text().splitlines()[finding.where.line - 1]


MODES = """
def record(row):
    with open("LOG", "a") as file:
        file.write(json.dumps(list(row)) + "\\n")


@hr.query(sink=hr.sink.foreach(record, idempotent=True), mode="MODE", trigger=hr.available_now)
def q(events):
    return RESULT
"""


@pytest.mark.capability("SINK-FOREACH-01")
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("append", [["apple", 1], ["apple", 3], ["pear", 2]]),
        ("update", [["apple", 1], ["apple", 4], ["pear", 2]]),
        ("complete", [["apple", 1], ["apple", 4], ["pear", 2], ["pear", 2]]),
    ],
)
def test_a_function_gets_the_rows_of_every_mode(
    tmp_path: Path, spark: SparkSession, mode: OutputMode, expected: list[list[Any]]
) -> None:
    result = "events.select('name', 'amount')"
    if mode != "append":
        result = "events.groupBy('name').agg(F.sum('amount').alias('amount'))"
    root = project(tmp_path / "p", MODES.replace("MODE", mode).replace("RESULT", result))
    loaded = load(root)
    assert run(loaded, spark=spark).exit_code == 0
    assert sorted(calls(root)) == expected
    assert check(loaded, spark=False).guarantees["q"].level == "exactly once"


@pytest.mark.capability("SINK-FOREACH-01")
def test_yaml_names_the_class_by_its_module(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", "", batches=FRUIT[:1])
    (root / "writers.py").write_text(AUDIT.replace("self, path,", f"self, path={str(root / 'log')!r},"))
    (root / "headrace.yml").write_text(
        "name: p\nmodules: [pipeline.py, writers.py]\nqueries:\n  q:\n    select: SELECT name, amount FROM events\n"
        "    trigger: available-now\n    sink: {foreach: writers:Audit}\n"
    )
    assert run(load(root), spark=spark).exit_code == 0
    assert [call[0] for call in calls(root)] == ["open", "process", "process", "close"]


def test_an_open_that_returns_nothing_is_refused_as_it_would_leave_out_every_row(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = project(tmp_path / "p")
    file = root / "pipeline.py"
    file.write_text(file.read_text().replace("return epoch_id not in self.skips", "pass"))
    finding = failure_of(root, spark)
    assert finding.code == "HR417"
    assert "return True from open" in finding.fix


def test_what_cannot_travel_to_the_workers_is_refused_before_start(tmp_path: Path, spark: SparkSession) -> None:
    opened = "import sqlite3\naudit = Audit('LOG')\naudit.connection = sqlite3.connect(':memory:')\n"
    root = project(tmp_path / "p", opened + QUERY.replace('Audit("LOG")', "audit"))
    finding = failure_of(root, spark)
    assert finding.code == "HR416"
    assert "Audit, which query 'q' gives its rows to, cannot be sent to the workers" in finding.what
    assert "sqlite3.Connection" in finding.what
    assert not (root / "log").exists()


class NoRow:
    def process(self) -> None: ...


class Needy:
    def __init__(self, url: str) -> None: ...

    def process(self, row: object) -> None: ...


class OpensWithOne:
    process = staticmethod(print)

    def open(self, partition_id: int) -> bool:
        return True


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("writers:Missing", "'writers:Missing' names no function"),
        (3, "int is not a function and has no method process(row)"),
        (dict, "dict is not a function and has no method process(row)"),
        (lambda: None, "cannot be called with one row"),
        (NoRow(), "the method process of NoRow cannot be called"),
        (Needy, "the class Needy cannot be made without arguments"),
        (OpensWithOne(), "the method open of OpensWithOne cannot be called"),
    ],
    ids=["text", "number", "class", "parameters", "process", "constructor", "open"],
)
def test_what_cannot_be_called_is_reported_without_spark(given: Any, says: str) -> None:
    (problem,) = Foreach(function=given).problems("append")
    assert problem.code == "HR415"
    assert says in problem.what
    assert problem.fix


def test_two_queries_may_use_the_same_function(tmp_path: Path) -> None:
    root = project(tmp_path / "p", QUERY + QUERY.replace("def q", "def r"))
    assert check(load(root), spark=False).errors == ()


def test_a_built_in_function_is_taken() -> None:
    assert list(Foreach(function=print).problems("append")) == []
    assert list(Foreach(function=sqlite3.Row).problems("append")) != []
