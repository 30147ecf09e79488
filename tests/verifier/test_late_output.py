"""The late rows of a query in a sink of their own: each once, through crashes, and what a change of the query means."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sqlite3 import OperationalError
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.contract import Observer
from headrace.errors import CheckFailed, Finding, HeadraceError
from headrace.generations.late_rows import newest_late_batch
from headrace.runner.late_output import LateOutput
from headrace.runner.stop import StopRequest
from headrace.verifier import late_rows
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import keep, restore, rows
from tests.verifier.late_project import BATCHES, land
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.model import Project
    from tests.conftest import Sessions

pytestmark = pytest.mark.spark
PIPELINE = """
import headrace as hr
from pyspark.sql import functions as F

events = hr.source.files("landing", format="json", schema="time TIMESTAMP, who STRING, value DOUBLE",
                         max_files_per_trigger=1, watermark=("time", "10 minutes"))


@hr.query(sink=hr.sink.sqlite("out.db", table="counts", key=["who", "start"], rewindable="7 days"), mode="update",
          trigger=hr.available_now{late})
def counted(events):
    counts = events.groupBy(F.window("time", "20 minutes", "10 minutes"), "who").count()
    return counts.select("who", F.col("window.start").alias("start"), "count")
"""
SQLITE = ', late=hr.sink.sqlite("out.db", table="late_rows")'
FILES = ', late=hr.sink.files("out", format="json")'
# Of the first batches 12:05 is late for two windows, and 12:45 for one of its two.
FIRST = [("12:05", 3), ("12:45", 3)]
SECOND = [[("13:40", "b")], [("13:40", "b")], [("12:10", "c"), ("13:41", "a")]]


def write(root: Path, late: str = SQLITE) -> Path:
    root.mkdir(exist_ok=True)
    (root / "headrace.yml").write_text("name: late\n")
    (root / "pipeline.py").write_text(PIPELINE.format(late=late))
    if not (root / "landing").exists():
        (root / "landing").mkdir()
        land(root, *BATCHES)
    return root


@pytest.fixture(scope="module")
def ran(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has run."""
    root = write(tmp_path_factory.mktemp("late") / "p")
    assert run(root, sessions.with_connectors(()))[1:] == (["finished", "finished"], [])
    return keep(root)


@pytest.fixture
def root(ran: Path) -> Path:
    """The project as it was after its run."""
    assert late_times(restore(ran)) == FIRST
    return ran


class Notes(Observer):
    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def note(self, finding: Finding) -> None:
        self.findings.append(finding)


def run(root: Path, spark: SparkSession, **more: Any) -> tuple[Project, list[str], list[str]]:
    """Run all; the project, the states of its queries, and the codes of what is more than a note."""
    project, notes = hr.load(root), Notes()
    result = hr.run(project, spark=spark, reporter=notes, **more)
    states = [f"{end.state} {end.finding.code}" if end.finding else end.state for end in result.outcomes]
    return project, states, [finding.code for finding in notes.findings if finding.severity != "note"]


def late_times(root: Path) -> list[tuple[str, int]]:
    """The times of the late rows in the table, each with its batch."""
    return rows(root / "out.db", "SELECT substr(time, 12, 5), late_batch FROM late_rows ORDER BY late_batch, time")


def held_so_far(root: Path) -> list[tuple[str, int]]:
    """The same while the query that makes the table may not have started."""
    try:
        return late_times(root)
    except OperationalError:
        return []


@pytest.mark.capability("OP-WM-04")
def test_each_late_row_comes_to_the_sink_once(spark: SparkSession, root: Path) -> None:
    (row,) = rows(root / "out.db", "SELECT * FROM late_rows WHERE time LIKE '%12:05%'")
    assert row[1:5] == ("a", 1.5, "events", 3)
    assert [str(value)[11:16] for value in row[5:7]] == ["12:50", "12:05"]
    assert row[7] == "Aggregate"
    land(root, *SECOND)
    assert run(root, spark)[1] == ["finished", "finished"]
    assert run(root, spark)[1] == ["finished", "finished"]
    assert late_times(root) == [*FIRST, ("12:10", 7)]
    assert hr.verify(hr.load(root), "counted_late", spark=spark).state == "equal"
    with pytest.raises(CheckFailed) as refused:
        hr.start_query(project := hr.load(root), project.query("counted"), spark)
    assert [finding.code for finding in refused.value.findings] == ["HR268"]


@pytest.mark.capability("OP-WM-04")
@pytest.mark.parametrize("trigger", rounds(["None", "hr.every('1 second')"]), ids=["default", "interval"])
def test_a_project_with_late_rows_is_checked_and_run_without_an_end_from_its_first_run_on(
    spark: SparkSession, tmp_path: Path, trigger: str
) -> None:
    root, stop = write(tmp_path / "p"), StopRequest()
    pipeline = root / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("hr.available_now", trigger))
    assert [
        finding.code for finding in hr.check(hr.load(root), spark=spark).findings if finding.severity != "note"
    ] == []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, root, spark, stop=stop)
        try:
            until("late rows", lambda: running.done() or ((root / "out.db").exists() and held_so_far(root) == FIRST))
        finally:
            stop.ask()
    assert running.result()[1] == ["stopped", "stopped"]
    assert late_times(root) == FIRST


@pytest.mark.parametrize("has_odd_fault", rounds([False, True]))
def test_what_cuts_the_way_of_late_rows_off_loses_and_repeats_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_odd_fault: bool
) -> None:
    root, write_once = write(tmp_path / "p"), late_rows._write_once

    def full(file: Path, lines: Sequence[str]) -> None:
        raise OSError(28, "No space left on device", str(file))

    def odd(file: Path, lines: Sequence[str]) -> None:
        raise ValueError("no luck")

    def killed(file: Path, lines: Sequence[str]) -> None:
        write_once(file, lines)
        raise OSError(4, "Interrupted", str(file))

    def kill_at(where: str) -> Callable[[str, int], None]:
        def reached(boundary: str, batch: int) -> None:
            if boundary == where:
                raise RuntimeError("killed")

        return reached

    faults = [(full, ""), *([(odd, "")] if has_odd_fault else [])]
    for fault, boundary in (*faults, (killed, "inside-transaction"), (write_once, "after-transaction")):
        monkeypatch.setattr(late_rows, "_write_once", fault)
        _, states, codes = run(root, spark, reached=kill_at(boundary))
        assert [state[:8] for state in states] == ["finished", "failed H" if boundary else "finished"]
        assert ("HR683" in codes) == (fault is not write_once)
    assert run(root, spark)[1:] == (["finished", "finished"], [])
    assert late_times(root) == FIRST


def test_a_run_that_is_to_stop_now_waits_for_no_late_rows(spark: SparkSession, root: Path) -> None:
    def write_slowly(*_: Any) -> None:
        assert let_go.wait(60)

    project = hr.load(root)
    query, layout = project.query("counted"), layout_in(project.storage, "counted")
    (layout.late / ".seen").unlink()
    let_go, now = threading.Event(), threading.Event()
    late = LateOutput(project=project, query=query, layout=layout, spark=spark, write=write_slowly, hurries=now.is_set)
    assert list(late.step()) == []
    now.set()
    (finding,) = late.close()
    assert (finding.code, "the run is to stop" in finding.what) == ("HR683", True)
    let_go.set()


def test_rows_of_batches_before_it_was_asked_for_come_as_well_also_into_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = write(tmp_path / "p", "")
    run(root, spark)
    write(root, FILES)
    assert run(root, spark)[1:] == (["finished", "finished"], [])
    files = (root / "out").glob("part-*.json")
    late_rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted((row["time"][11:16], row["late_batch"]) for row in late_rows) == FIRST


def test_a_query_that_is_renamed_continues_its_late_rows(spark: SparkSession, root: Path) -> None:
    land(root, *SECOND)
    text = (root / "pipeline.py").read_text().replace("def counted(", "def tallied(")
    (root / "pipeline.py").write_text(
        text.replace("trigger=hr.available_now", 'trigger=hr.available_now, renamed_from="counted"')
    )
    for _ in range(2):
        project, states, codes = run(root, spark)
        assert (states, codes) == (["finished", "finished"], [])
        assert late_times(root) == [*FIRST, ("12:10", 7)]
        # Then the option may go.
        (root / "pipeline.py").write_text(text)
    assert hr.verify(project, "tallied_late", spark=spark).state == "equal"


@pytest.mark.long
def test_a_query_that_is_reset_begins_its_late_rows_again(spark: SparkSession, root: Path) -> None:
    project = hr.load(root)
    reset = hr.reset(project, "counted", result="drop", spark=spark)
    assert any("counted_late" in note for note in reset.plan.notes)
    reset.apply()
    # Rows of both generations would lie in one table.
    _, states, _ = run(root, spark)
    assert (states[0], states[1][:6]) == ("finished", "failed")
    assert late_times(root) == FIRST
    hr.reset(project, "counted_late", result="drop", spark=spark).apply()
    assert run(root, spark)[1] == ["finished", "finished"]
    assert late_times(root) == FIRST
    assert layout_in(project.storage, "counted", 2).late.is_dir()


@pytest.mark.long
def test_a_query_that_is_rebuilt_begins_its_late_rows_again(spark: SparkSession, root: Path) -> None:
    project = hr.load(root)
    rebuild = hr.rebuild(project, "counted", spark=spark)
    assert any("counted_late" in note for note in rebuild.plan.notes)
    rebuild.apply()
    _, states, _ = run(root, spark)
    assert (states[0], states[1][:6]) == ("finished", "failed")
    hr.reset(project, "counted_late", result="drop", spark=spark).apply()
    assert run(root, spark)[1] == ["finished", "finished"]
    assert late_times(root) == FIRST


def test_a_query_goes_back_only_as_far_as_its_late_rows_stay(spark: SparkSession, root: Path) -> None:
    land(root, [("13:45", "a")])
    project, *_ = run(root, spark)
    with pytest.raises(HeadraceError) as refused:
        _ = hr.rewind(project, "counted", to_batch=2, spark=spark).plan
    assert "counted_late" in refused.value.findings[0].what
    hr.rewind(project, "counted", to_batch=3, spark=spark).apply()
    assert newest_late_batch(layout_in(project.storage, "counted")) == 3
    land(root, *SECOND)
    assert run(root, spark)[1] == ["finished", "finished"]
    assert late_times(root)[:2] == FIRST
    assert [time for time, _ in late_times(root)] == ["12:05", "12:45", "12:10"]
