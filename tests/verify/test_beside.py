"""Results are verified beside the run that makes them, which nothing of it ends."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.contract import BatchRecord
from headrace.errors import Finding
from headrace.observe.history import History
from headrace.queries.layout import history_file
from headrace.run.stop import StopRequest
from headrace.verify import Verdict
from headrace.verify.beside import VerifyingBeside
from tests.observe.history.test_store import RECORD
from tests.run.projects import land, write_project
from tests.run.test_run import FRUIT, TOTALS, Told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wait_for(is_so: Callable[[], Any]) -> None:
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.spark
def test_the_verdict_is_in_the_history_while_the_query_runs_on(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    project, told, stop, results = hr.load(root), Told(), StopRequest(), []

    def run() -> None:
        every = hr.every("0.1 seconds")
        results.append(hr.run(project, trigger=every, spark=spark, reporter=told, stop=stop, verify_every=0.2))

    def verdict() -> str:
        with History.open(history_file(project.local_storage), read_only=True) as history:
            return str(history.verdicts().get("totals", {}).get("verdict"))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: told.all(BatchRecord))
        wait_for(lambda: verdict() == "equal")
        with sqlite3.connect(root / "out.db", timeout=30) as database:
            database.execute("UPDATE totals SET amount = 9 WHERE name = 'pear'")
        land(root, 2, [{"name": "apple", "amount": 5}])
        wait_for(lambda: verdict() == "mismatch")
        land(root, 3, [{"name": "apple", "amount": 5}])
        wait_for(lambda: any(finding.code == "HR712" for finding in told.all(Finding)))
    finally:
        stop.ask()
        thread.join()
    assert [result.exit_code for result in results] == [0]


@pytest.mark.plain
def test_a_failure_of_verify_is_a_finding_and_the_next_one_is_tried() -> None:
    def verify(query: str) -> Verdict:
        tried.append(query)
        raise ValueError("no luck")

    tried: list[str] = []
    findings: list[Finding] = []
    beside = VerifyingBeside(0.01, verify, lambda verdict: verdict, findings.append)
    for count in (1, 2):
        beside.progressed(RECORD)
        wait_for(lambda count=count: len(findings) == count)  # type: ignore[misc]
    beside.close()
    assert tried == [RECORD.query] * 2
    assert {(finding.code, finding.severity) for finding in findings} == {("HR717", "warning")}
