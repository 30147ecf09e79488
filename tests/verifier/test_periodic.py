"""Results are verified during the run that makes them, which no verification ends."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.cli import main
from headrace.contract import BatchRecord, Outcome
from headrace.errors import Finding, HeadraceError
from headrace.generations.log import history_file
from headrace.history import History
from headrace.runner.stop import StopRequest
from headrace.verifier import periodic
from headrace.verifier.periodic import PeriodicVerifier
from headrace.verifier.scope import WHOLE, RowScope
from headrace.verifier.verdict import Verdict
from tests.history.test_store import RECORD
from tests.runner.projects import land, write_project
from tests.runner.test_run import FRUIT, TOTALS, Recorder
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_verdict_is_in_the_history_while_the_query_runs_on(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    project, recorder, stop, results = hr.load(root), Recorder(), StopRequest(), []

    def run() -> None:
        every = hr.every("0.1 seconds")
        results.append(hr.run(project, trigger=every, spark=spark, reporter=recorder, stop=stop, verify_every=0.2))

    def verdict() -> str:
        with History.open(history_file(project.local_storage), read_only=True) as history:
            return str(history.verdicts().get("totals", {}).get("verdict"))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: recorder.all(BatchRecord))
        eventually(lambda: verdict() == "equal")
        with sqlite3.connect(root / "out.db", timeout=30) as database:
            database.execute("UPDATE totals SET amount = 9 WHERE name = 'pear'")
        land(root, 2, [{"name": "apple", "amount": 5}])
        eventually(lambda: verdict() == "mismatch")
        land(root, 3, [{"name": "apple", "amount": 5}])
        eventually(lambda: any(finding.code == "HR712" for finding in recorder.all(Finding)))
    finally:
        stop.ask()
        thread.join()
    assert [result.exit_code for result in results] == [0]


@pytest.mark.plain
def test_parts_are_of_looks_that_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    assert main(["run", "--verify-parts", "3", "-C", str(root)]) == 2
    assert "HR090" in capsys.readouterr().err
    with pytest.raises(HeadraceError, match=r"HR113.*verify_parts is 0"):
        hr.run(hr.load(root), verify_every=1.0, verify_parts=0)


@pytest.mark.plain
@pytest.mark.parametrize("interval", ["0 seconds", "hourly"])
def test_no_time_between_two_looks_is_refused(
    interval: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    assert main(["run", "--verify-every", interval, "-C", str(root)]) == 2
    errors = capsys.readouterr().err
    assert "HR090" in errors
    assert '--verify-every "1 hour"' in errors
    assert "Traceback" not in errors


def verifier_of(
    monkeypatch: pytest.MonkeyPatch,
    verify: Callable[[str, Any, RowScope], Verdict],
    findings: list[Finding],
    *,
    parts: int = 1,
) -> PeriodicVerifier:
    """A verifier that works each hundredth of a second during a run."""
    monkeypatch.setattr(periodic, "use_low_priority_pool", object)
    return PeriodicVerifier(0.01, verify, lambda verdict: verdict, findings.append, parts=parts)


@pytest.mark.plain
def test_a_failure_of_verify_is_a_finding_and_the_next_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(query: str, spark: Any, scope: RowScope) -> Verdict:
        tried.append(query)
        raise ValueError("no luck")

    tried: list[str] = []
    findings: list[Finding] = []
    verifying = verifier_of(monkeypatch, verify, findings)
    for count in (1, 2):
        verifying.progressed(RECORD)
        eventually(lambda count=count: len(findings) == count)  # type: ignore[misc]
    verifying.close()
    assert tried == [RECORD.query] * 2
    assert {(finding.code, finding.severity) for finding in findings} == {("HR717", "warning")}


@pytest.mark.plain
def test_each_look_takes_the_next_part_and_after_a_mismatch_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(query: str, spark: Any, scope: RowScope) -> Verdict:
        looked.append(scope)
        if len(looked) == 2:
            raise ValueError("no luck")
        return Verdict(query=query, batch=1, state="mismatch" if len(looked) in (5, 6) else "equal")

    looked: list[RowScope] = []
    verifying = verifier_of(monkeypatch, verify, [], parts=3)
    for count in range(1, 11):
        verifying.progressed(RECORD)
        eventually(lambda count=count: len(looked) == count)  # type: ignore[misc]
    verifying.close()
    first = looked[0].part
    assert first is not None
    turn = [RowScope(part=((first[0] - 1 + at) % 3 + 1, 3)) for at in range(7)]
    # What failed is looked at again.
    assert looked == [turn[0], turn[1], *turn[1:4], WHOLE, WHOLE, *turn[4:]]


@pytest.mark.plain
def test_the_end_of_a_query_breaks_its_verification_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(query: str, spark: Any, scope: RowScope) -> Verdict:
        begun.set()
        assert broken_off.wait(60)
        ended.append(query)
        raise ValueError("cancelled")

    begun, broken_off, ended, findings = threading.Event(), threading.Event(), list[str](), list[Finding]()
    monkeypatch.setattr(periodic, "cancel_low_priority_jobs", broken_off.set)
    verifying = verifier_of(monkeypatch, verify, findings)
    verifying.progressed(RECORD)
    assert begun.wait(60)
    verifying.progressed(RECORD)
    verifying.ended(Outcome(query=RECORD.query, state="stopped"))
    assert ended == [RECORD.query]
    # Nothing is said of what was broken off, and no look at the batches since is begun.
    time.sleep(0.1)
    verifying.close()
    assert (ended, findings) == ([RECORD.query], [])


@pytest.mark.plain
def test_no_session_is_begun_to_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(query: str, spark: Any, scope: RowScope) -> Verdict:
        tried.append(query)
        raise ValueError("there is no session")

    looked, tried, findings = threading.Event(), list[str](), list[Finding]()
    verifying = verifier_of(monkeypatch, verify, findings)
    monkeypatch.setattr(periodic, "use_low_priority_pool", looked.set)
    verifying.progressed(RECORD)
    assert looked.wait(60)
    time.sleep(0.1)
    verifying.close()
    assert (tried, findings) == ([], [])
