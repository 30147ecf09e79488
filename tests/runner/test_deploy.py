"""A changed project is brought to a running application, which stops nothing that has not changed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.api import events, load, verify
from headrace.cli import main
from headrace.contract import Observer
from headrace.errors import Finding
from headrace.runner.stop import StopRequest
from headrace.ui.running import application_health
from tests.waiting import until

from .projects import land, ledger, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STEADY = """
@hr.query(sink=hr.sink.sqlite("steady.db", table="totals", key=["name"]), mode="update")
def steady(events):
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))
"""
EDITED = """
@F.udf("int")
def version(amount):
    return {version}

@hr.query(sink=hr.sink.sqlite("edited.db", table="copied"), on_change="forward")
def edited(events):
    return events.select("name", "amount", version("amount").alias("version"))
"""
OTHER = """
@hr.query(sink=hr.sink.sqlite("{name}.db", table="copied"){more})
def {name}(events):
    return events
"""


def row(number: int) -> list[dict[str, Any]]:
    return [{"name": f"n{number}", "amount": number}]


def write(root: Path, *parts: str) -> None:
    write_project(root, "".join(parts))


@contextmanager
def running(root: Path, spark: SparkSession) -> Iterator[hr.results.ApplicationHandle]:
    with hr.start(load(root), spark=spark) as application:
        names = [query.name for query in application.queries]
        until("start", lambda: all(application.get(name).lastProgress for name in names))
        yield application


def versions(root: Path) -> dict[int, int]:
    """The version of the code that has written each amount; a row that is there twice fails."""
    copies = rows(root / "edited.db", "SELECT amount, version FROM copied")
    assert len({amount for amount, _ in copies}) == len(copies)
    return dict(copies)


def test_what_has_changed_runs_the_new_code_and_what_has_not_never_stops(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "p"
    write(root, STEADY, EDITED.format(version=1), OTHER.format(name="removed", more=""))
    land(root, 0, row(0))
    pipeline = root / "pipeline.py"
    with running(root, spark) as application:
        steady, edited = application.get("steady"), application.get("edited")
        first, before = steady.runId, edited.runId
        old = next(name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(pipeline))
        write(
            root,
            "# A comment moves every line.\n",
            STEADY,
            EDITED.format(version=2),
            OTHER.format(name="added", more=""),
        )
        land(root, 1, row(1))
        until("second batch", lambda: ledger(root / "edited.db") == [0, 1])

        assert main(["deploy", "-C", str(root), "--dry-run"]) == 0
        planned = capsys.readouterr().out
        assert "= steady: runs on" in planned
        assert "~ edited: stops after its batch, and starts with the new code" in planned
        assert ("+ added: starts" in planned, "- removed: stops after its batch" in planned) == (True, True)
        assert (edited.runId, application.get("removed").isActive) == (before, True)

        assert main(["deploy", "-C", str(root), "--json"]) == 0
        (result,) = json.loads(capsys.readouterr().out)["applications"]
        assert {step["query"]: step["action"] for step in result["steps"]} == {
            "steady": "keep",
            "edited": "restart",
            "added": "start",
            "removed": "stop",
        }
        assert result["done"]
        # Without a new row, the code that was deployed has made no batch.
        (again,) = hr.running(load(root)).deploy(dry_run=True)
        assert {step.action for step in again.steps} == {"keep"}
        land(root, 2, row(2))
        until("next batch", lambda: 2 in ledger(root / "edited.db") and 2 in ledger(root / "steady.db"))
        assert (steady.runId, edited.runId == before, application.get("removed").state) == (first, False, "removed")
        until("all rows", lambda: len(rows(root / "added.db", "SELECT * FROM copied")) == 3)
        assert old not in sys.modules
        assert main(["restart", "removed", "-C", str(root)]) == 2
    assert versions(root) == {0: 1, 1: 1, 2: 2}
    assert ledger(root / "steady.db") == [0, 1, 2]
    assert sorted(rows(root / "steady.db", "SELECT name, amount FROM totals")) == [("n0", 0), ("n1", 1), ("n2", 2)]
    assert verify(load(root), "steady", spark=spark).state == "equal"
    assert [event.kind for event in events(load(root)) if event.kind == "deployed"] == ["deployed"]


BROKEN = """
@hr.query(sink=hr.sink.sqlite("broken.db", table="copied"))
def broken(events):
    return events.select(F.raise_error(F.lit("no")).cast("string").alias("name"))
"""


def test_a_failed_query_that_a_deploy_removes_is_no_fault_of_the_application(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "p"
    write(root, STEADY, BROKEN)
    land(root, 0, row(0))
    with hr.start(load(root), spark=spark) as application:
        broken = application.get("broken")
        until("failure", lambda: broken.state == "failed" and bool(application.get("steady").lastProgress))
        assert (main(["status", "-C", str(root)]), application_health(load(root))["ok"]) == (1, False)
        write(root, STEADY)
        assert main(["deploy", "-C", str(root)]) == 0
        capsys.readouterr()
        assert (main(["status", "-C", str(root)]), application_health(load(root))["ok"]) == (0, True)
        shown = capsys.readouterr().out
        assert "broken: removed from the project by a deploy" in shown
        assert (broken.state, "HR" in shown) == ("removed", False)


FORWARD = ', on_change="forward"'
REFUSED = {
    "a change that would mix meanings": (STEADY.replace("F.sum", "F.max"), "HR535"),
    "a change for new rows alone": (STEADY + EDITED.format(version=2).replace(FORWARD, ""), "HR537"),
    "a file that cannot be loaded": ("raise ValueError('no')\n", "HR114"),
}


def test_if_one_query_is_refused_nothing_stops(tmp_path: Path, spark: SparkSession) -> None:
    root = tmp_path / "p"
    write(root, STEADY, EDITED.format(version=1))
    land(root, 0, row(0))
    project = load(root)
    with running(root, spark) as application:
        before, modules = {query.name: query.runId for query in application.queries}, dict(sys.modules)
        for case, (body, code) in REFUSED.items():
            write(root, body)
            (result,) = hr.running(project).deploy()
            assert result.errors, case
            assert result.errors[0].code == code, (case, result)
            assert (result.carried_out, result.needs_restart) == (False, False)
        assert {query.name: query.runId for query in application.active} == before
        assert [name for name in modules if sys.modules.get(name) is not modules[name]] == []
        write(root, STEADY, EDITED.format(version=2).replace(FORWARD, ""))
        (result,) = hr.running(project).deploy(accept_forward=True)
        assert {step.query: step.action for step in result.steps} == {"steady": "keep", "edited": "restart"}
        land(root, 1, row(1))
        until("second batch", lambda: ledger(root / "edited.db") == [0, 1])

        # Of two at the same time, the second one waits for the first.
        write(root, STEADY, EDITED.format(version=3))
        application.get("steady").pause()
        with ThreadPoolExecutor(2) as threads:
            both = [threads.submit(hr.running(project).deploy) for _ in range(2)]
        assert [done.result()[0].done for done in both] == [True, True]
        assert sorted(done.result()[0].steps[1].action for done in both) == ["keep", "restart"]
        assert application.get("steady").state == "paused"
        write(root, STEADY.replace('"update"', '"update", trigger=hr.every("1 second")'), EDITED.format(version=3))
        (result,) = hr.running(project).deploy()
        assert result.steps[0].outcome == "is paused; its next start runs the new code"
        assert application.get("steady").state == "paused"
    assert versions(root) == {0: 1, 1: 2}


FAILS = """
    if amount == 1:
        raise ValueError("no amount of one")
"""


def test_where_new_code_does_not_start_the_former_code_starts_again(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "p"
    # The next batch is that of the next start.
    edited = EDITED.replace(FORWARD, FORWARD + ', trigger=hr.every("1 hour")')
    write(root, STEADY, edited.format(version=1))
    land(root, 0, row(0))
    with running(root, spark) as application:
        first = application.get("steady").runId
        land(root, 1, row(1))
        write(root, STEADY, edited.format(version=2).replace("(amount):\n", "(amount):" + FAILS))
        assert main(["deploy", "-C", str(root)]) == 1
        printed = capsys.readouterr()
        assert "edited: the former code runs again" in printed.out
        assert ("HR865" in printed.err, "no amount of one" in printed.err) == (True, True)
        until("second batch", lambda: ledger(root / "edited.db") == [0, 1])
        write(root, STEADY, edited.format(version=3))
        land(root, 2, row(2))
        assert main(["deploy", "-C", str(root)]) == 0
        until("third batch", lambda: ledger(root / "edited.db") == [0, 1, 2])
        assert application.get("steady").runId == first
    assert versions(root) == {0: 1, 1: 1, 2: 3}


LIMITS = {
    "a setting of Spark": ("spark: {spark.sql.shuffle.partitions: 7}", "'spark.sql.shuffle.partitions'"),
    "the place of the metrics": ("metrics: {port: 0}", "'metrics'"),
    "jars": ("sources: {more: {kafka: {bootstrap_servers: 'b:9092', subscribe: t}}}", "no jars of kafka"),
}


def test_what_a_running_python_cannot_take_is_named_before_anything_stops(tmp_path: Path, spark: SparkSession) -> None:
    root = tmp_path / "p"
    write(root, STEADY)
    with running(root, spark) as application:
        first = application.get("steady").runId
        for line, named in LIMITS.values():
            (root / "headrace.yml").write_text(f"name: p\n{line}\n")
            (result,) = hr.running(load(root)).deploy()
            assert (result.needs_restart, [finding.code for finding in result.findings]) == (True, ["HR854"])
            assert named in result.findings[0].what
            (again,) = hr.running(load(root)).deploy(restart=True)
            assert (again.reasons, "cannot begin again by itself" in again.findings[0].what) == ((), True)
        assert application.get("steady").runId == first


def test_a_variable_and_a_module_outside_of_the_project_count_as_well(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "p"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shared_by_projects.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.setenv("PLACE", "out.db")
    write(root, STEADY.replace("steady.db", "${PLACE}"), "import shared_by_projects\n")
    with running(root, spark):
        (tmp_path / "lib" / "shared_by_projects.py").write_text("VALUE = 22\n")
        project = load(root, environ={"PLACE": "another.db"})
        (result,) = hr.running(project).deploy(dry_run=True)
        text = "\n".join(finding.what for finding in result.findings)
    monkeypatch.delitem(sys.modules, "shared_by_projects", raising=False)
    assert "the files of 'shared_by_projects'" in text
    assert "the variable 'PLACE' has another value" in text


class View(Observer):
    """Keeps the newest note of each code."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}

    def note(self, finding: Finding) -> None:
        self.notes[finding.code] = finding.what


def test_each_save_of_a_file_is_deployed_while_the_run_watches(tmp_path: Path, spark: SparkSession) -> None:
    root = tmp_path / "p"
    write(root, EDITED.format(version=1))
    land(root, 0, row(0))
    project, request, view = load(root), StopRequest(), View()
    runs = threading.Thread(target=partial(hr.run, project, spark=spark, reporter=view, stop=request, watch=True))
    runs.start()
    try:
        until("first batch", lambda: ledger(root / "edited.db") == [0])
        write(root, EDITED.format(version=2), "this is not Python")
        until("refusal", lambda: any(event.kind == "finding" for event in events(project)))
        write(root, EDITED.format(version=3))
        until("deploy", lambda: any(event.kind == "deployed" for event in events(project)))
        assert request.board.project is not None, "the dashboard of the run shows it"
        until("word of the deploy", lambda: "HR866" in view.notes)
        assert view.notes["HR866"] == "a deploy is done: edited: runs the new code from batch 1 on"
        land(root, 1, row(1))
        until("second batch", lambda: ledger(root / "edited.db") == [0, 1])
    finally:
        request.ask()
        runs.join(60)
    assert versions(root) == {0: 1, 1: 3}
