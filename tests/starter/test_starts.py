"""Queries that do not depend on each other start together; a reader waits for the writer of what it reads."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.api import load
from headrace.cli import main
from headrace.contract import Observer, QueryState
from headrace.control.board import Board
from headrace.runner import supervision
from headrace.runner.batch_records import Notes
from headrace.runner.states import States
from headrace.runner.supervise import run
from headrace.spark.jvm.session_conf import all_settings
from tests.runner.projects import land, write_project
from tests.runner.test_run import FRUIT
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.contract import QueryStart

QUERY = """
@hr.query(sink=hr.sink.sqlite("{name}.db", table="{name}"), trigger={trigger})
def {name}(events):
    return events
"""
MEETING = """
from tests.starter.meeting import meet

@hr.query(sink=hr.sink.sqlite("one.db", table="one"), trigger=hr.available_now)
def one(events):
    meet()
    return events

@hr.query(sink=hr.sink.sqlite("two.db", table="two"), trigger=hr.available_now)
def two(events):
    meet()
    return events.dropDuplicates(["name"])
"""
BROKEN = """
@hr.query(sink=hr.sink.sqlite("broken.db", table="broken"))
def broken(events):
    raise LookupError("no such shop")

@hr.query(sink=hr.sink.sqlite("sound.db", table="sound"))
def sound(events):
    return events
"""
READING = """
@hr.query(sink=hr.sink.table("fruit_{number}", format="parquet"), trigger=hr.available_now)
def writes(events):
    return events

fruit = hr.source.table("fruit_{number}")

@hr.query(sink=hr.sink.sqlite("read.db", table="reads"), trigger=hr.available_now)
def reads(fruit):
    return fruit
"""


class Heard(Observer):
    """Remembers which step of which start began, and what ended."""

    def __init__(self) -> None:
        self.steps: list[tuple[str | None, str]] = []

    def preparing(self, what: str, query: str | None) -> None:
        self.steps.append((query, what))

    def started(self, start: QueryStart) -> None:
        self.steps.append((start.query, "started"))


@pytest.mark.spark
def test_queries_that_do_not_depend_on_each_other_are_planned_at_the_same_time(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = write_project(tmp_path / "p", MEETING, batches=FRUIT)
    before = all_settings(spark)
    heard = Heard()
    result = run(load(root), spark=spark, reporter=heard)
    assert [(end.query, end.state, end.rows) for end in result.outcomes] == [
        ("one", "finished", 3),
        ("two", "finished", 3),
    ]
    plans = [query for query, step in heard.steps if step == "making its plan"]
    assert sorted(plans) == ["one", "two"]
    assert heard.steps.index((plans[1], "making its plan")) < heard.steps.index((plans[0], "started"))
    assert all_settings(spark) == before, "the session has what it had, with either as the last to leave"


@pytest.mark.spark
def test_starts_that_wait_in_their_sinks_hold_no_other_one_up(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "default_partitions", lambda: 1)
    names = ("locked", "also_locked", "free")
    root = write_project(tmp_path / "p", "".join(QUERY.format(name=name, trigger="None") for name in names))
    with ExitStack() as stack:
        for name in names[:2]:
            other = stack.enter_context(closing(sqlite3.connect(root / f"{name}.db", isolation_level=None)))
            other.execute("BEGIN EXCLUSIVE")
        application = stack.enter_context(hr.start(load(root), spark=spark))
        eventually(lambda: application.get("free").state == "running")
        assert [application.get(name).state for name in names[:2]] == ["starting", "starting"]
        application.stop()


@pytest.mark.spark
def test_a_query_that_reads_a_table_starts_after_the_one_that_writes_it(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", READING.format(number=id(tmp_path)), batches=FRUIT)
    heard = Heard()
    result = run(load(root), spark=spark, reporter=heard)
    assert [(end.query, end.state, end.rows) for end in result.outcomes] == [
        ("writes", "finished", 3),
        ("reads", "finished", 3),
    ]
    assert heard.steps.index(("writes", "started")) < heard.steps.index(("reads", "reading its checkpoint"))


@pytest.mark.spark
def test_an_application_whose_driver_is_fenced_ends_though_another_query_is_idle(
    tmp_path: Path, spark: SparkSession
) -> None:
    pair = "".join(QUERY.format(name=name, trigger="None") for name in ("taken", "idle"))
    root = write_project(tmp_path / "p", pair, batches=FRUIT)
    with hr.start(load(root), spark=spark) as application:
        eventually(lambda: all(query.state == "running" and query.lastProgress for query in application.queries))
        eventually(lambda: [query.lastProgress["batchId"] for query in application.queries] == [1, 1])
        with sqlite3.connect(root / "taken.db") as newer:
            newer.execute("UPDATE _headrace_epochs SET epoch = epoch + 1")
        newer.close()
        land(root, 2, FRUIT[1])
        result = application.wait()
    assert result.exit_code == 3
    assert [(end.query, end.state, end.fenced) for end in result.outcomes] == [
        ("taken", "failed", True),
        ("idle", "stopped", False),
    ]


@pytest.mark.spark
def test_a_restart_after_an_edit_says_that_the_file_has_changed_and_is_not_read(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", BROKEN, batches=FRUIT)

    def restart(query: str, code: int) -> str:
        assert main(["restart", query, "-C", str(root)]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    with hr.start(load(root), spark=spark) as application:
        broken, sound = application.get("broken"), application.get("sound")
        eventually(lambda: (broken.state, sound.state) == ("failed", "running"))
        assert "no such shop" in (before := restart("broken", 1))
        assert "has changed" not in before
        edited = (root / "pipeline.py").read_text().replace("no such shop", "another one")
        (root / "pipeline.py").write_text(edited + "# corrected\n")
        changed = "pipeline.py has changed since the application read them, and this order reads no change"
        assert "no such shop" in (after := restart("broken", 1))
        assert changed in after
        assert changed in restart("sound", 0)


@pytest.mark.plain
def test_the_step_of_a_start_is_shown_until_the_query_runs(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", QUERY.format(name="copied", trigger="None"))
    project, board = load(root), Board()
    states = States(project, board, Notes(project, Observer()), Observer())
    states.add(project, list(project.queries.values()))
    states.begin_step("copied", "reading its checkpoint")
    assert states["copied"].state == QueryState(query="copied", since=states["copied"].state.since)
    states.start("copied", None)
    states.begin_step("copied", "making its plan")
    (status,) = hr.status(project)
    assert (status.state, status.now.step, board.states()["copied"].step) == (
        "starting",
        "making its plan",
        "making its plan",
    )
    states.change("copied", "running")
    assert board.states()["copied"].step == ""
