"""A start that is refused until the project is changed ends with an exit code of its own, after which none follows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli import main
from headrace.contract import Outcome
from headrace.control.board import RunResult
from headrace.errors import EXIT_REFUSED, Finding
from headrace.findings import CODES
from tests.in_session import lend
from tests.runner.projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = Outcome(query="refused", state="failed", finding=Finding(code="HR226", what="w"), refused=True)
FAILED = Outcome(query="failed", state="failed", finding=Finding(code="HR405", what="w"))
DONE = Outcome(query="done", state="finished")
FENCED = Outcome(query="fenced", state="failed", finding=Finding(code="HR409", what="w"), fenced=True)
FINE = "sources: {e: {rate: {}}}\nqueries: {q: {select: SELECT * FROM e, sink: console}}\n"
CLUSTER = "targets: {dev: {master: 'spark://127.0.0.1:9'}}\n"
QUERIES = """
@F.udf("int")
def fails(amount):
    raise ValueError("no price")

@hr.query(sink=hr.sink.sqlite("out.db", table="counts", key=["name"]), mode="update", trigger=hr.available_now)
def counts(events):
    return events.groupBy("name").agg(F.KIND("amount").alias("amount"))

@hr.query(sink=hr.sink.sqlite("failing.db", table="t"), trigger=hr.available_now)
def failing(events):
    return events.select(fails("amount").alias("amount"))

@hr.query(sink=hr.sink.sqlite("sorted.db", table="t"), trigger=hr.available_now)
def in_order(events):
    return events.sort("name")
"""


@pytest.mark.plain
def test_a_refusal_is_an_error_that_does_not_pass_by_itself() -> None:
    of_the_project = [code for code in CODES if code.refuses]
    assert [code for code in of_the_project if "error" not in code.severities] == []
    assert [code for code in of_the_project if code.passes != "never"] == []


@pytest.mark.plain
@pytest.mark.parametrize(
    ("code", "what", "refused"),
    [
        ("HR103", "headrace.yml has no key 'qeries'", True),
        ("HR226", "a stream has no such aggregate or window", True),
        ("HR210", "the function failed: KeyError: 'price'", True),
        ("HR210", "the function failed: ConnectionError: the shop does not answer", False),
        ("HR536", "a change does not fit the checkpoint", True),
        ("HR115", "the file /run/secrets/url cannot be read", False),
        ("HR332", "the directory landing does not exist", False),
        ("HR332", "there is no topic 'orders'", False),
        ("HR526", "the query is already running", False),
        ("HR601", "query 'q' failed: ValueError", False),
        ("DUCK1", "of a connector of others", False),
    ],
)
def test_only_what_a_change_of_the_project_corrects_is_a_refusal(code: str, what: str, refused: bool) -> None:
    assert Finding(code=code, what=what).refuses is refused


@pytest.mark.plain
@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        ([DONE], 0),
        ([REFUSED, REFUSED], EXIT_REFUSED),
        ([REFUSED, DONE], 1),
        ([REFUSED, FAILED], 1),
        ([FAILED], 1),
        ([REFUSED, FENCED], 3),
    ],
    ids=lambda value: "+".join(one.query for one in value) if isinstance(value, list) else str(value),
)
def test_a_run_is_refused_when_each_of_its_queries_is(outcomes: list[Outcome], code: int) -> None:
    assert RunResult(outcomes=tuple(outcomes)).exit_code == code


@pytest.mark.plain
@pytest.mark.parametrize(
    ("settings", "words", "code", "ends"),
    [
        (FINE.replace("select", "selekt"), ["run"], "HR103", EXIT_REFUSED),
        (FINE.replace("FROM e", "FROM f"), ["run"], "HR204", EXIT_REFUSED),
        (FINE.replace("console", "{files: '${file:/nowhere}'}"), ["run"], "HR115", 1),
        (CLUSTER + FINE.replace("select", "selekt"), ["submit"], "HR103", EXIT_REFUSED),
        # It would start a driver again that has failed, and one that has found the cluster away.
        (CLUSTER + FINE.replace("FROM e", "FROM f"), ["submit", "--supervise"], "HR204", EXIT_REFUSED),
    ],
    ids=["a wrong key", "no such input", "a secret that may come", "submitted", "supervised"],
)
def test_a_refused_process_differs_from_one_that_may_start_later(
    tmp_path: Path, settings: str, words: list[str], code: str, ends: int
) -> None:
    (tmp_path / "headrace.yml").write_text(f"name: p\n{settings}")
    command = [sys.executable, "-m", "headrace", *words, "-C", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, code in done.stderr) == (ends, True), done.stderr


@pytest.mark.spark
def test_a_query_that_fails_while_it_runs_differs_from_a_refused_one(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", QUERIES.replace("KIND", "sum"), batches=[[{"name": "apple", "amount": 1}]])
    lend(spark, monkeypatch)

    def ends(*queries: str) -> int:
        return main(["run", *queries, "-C", str(root)])

    assert [ends("counts"), ends("failing")] == [0, 1]
    assert [ends("in_order"), ends("counts", "in_order")] == [EXIT_REFUSED, 1]
    capsys.readouterr()
    (root / "pipeline.py").write_text((root / "pipeline.py").read_text().replace("F.sum", "F.max"))
    assert ends("counts") == EXIT_REFUSED
    assert "HR535" in capsys.readouterr().err
