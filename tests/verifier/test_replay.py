"""Late rows that are brought back make the result what the batch query answers to all rows, once and for all."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.api import late, load, verify
from headrace.contract import Boundary
from headrace.errors import HeadraceError
from headrace.generations.log import history_file
from headrace.history import History
from headrace.model import Project
from headrace.spark.jvm.session_conf import apply_settings
from headrace.verifier.late_rows import apply_late_rows
from headrace.verifier.verdict import Replayed
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import keep, restore
from tests.verifier import late_project
from tests.verifier.late_project import BATCHES, counts, counts_in, land, read, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import Sessions

pytestmark = pytest.mark.spark

REPLAYS = "SELECT batch, late_rows, rows_written, rows_deleted FROM _headrace_replays ORDER BY batch"


class Stop(BaseException):
    """No error that a handler of faults handles."""


@pytest.fixture(scope="module")
def ran(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose query `updated` has run."""
    root = late_project.write_project(tmp_path_factory.mktemp("late") / "p")
    run(root, "updated", sessions.with_connectors(()))
    return keep(root)


@pytest.fixture
def root(ran: Path) -> Path:
    """The project as it was after its run."""
    return restore(ran)


def replay(project: Project, query: str, spark: SparkSession) -> Replayed:
    result = late(project, query, replay=True, spark=spark)
    assert result.replay is not None
    return result.replay


@pytest.mark.capability("OP-WM-04")
def test_in_update_mode_the_result_holds_every_row_and_stays_so(spark: SparkSession, root: Path) -> None:
    project = load(root)
    assert counts_in(root, "updated")["a", "12:00"] == 2
    assert replay(project, "updated", spark) == Replayed(late=2, written=2, deleted=0)
    assert counts_in(root, "updated") == counts(BATCHES)
    assert read(root, "SELECT total FROM updated WHERE who = 'a' AND count = 3") == [(4.5,)]
    verdict = verify(project, "updated", spark=spark)
    assert (verdict.state, verdict.rows_late, verdict.rows_replayed) == ("equal", 0, 2)
    assert verdict.sentence == "correct: equal to the batch query over the same input; 2 late rows brought back"

    assert [line[1:] for line in read(root, REPLAYS)] == [(2, 2, 0)]
    result = late(project, "updated", spark=spark)
    assert (result.count, result.replayed) == (2, result.batch)

    # The query continues: open windows grow, the replayed ones stay, and what is late from now on is named again.
    more = [[("12:59", "a"), ("12:06", "a"), ("13:01", "a")], [("13:30", "d")]]
    land(root, *more)
    run(root, "updated", spark)
    verdict = verify(project, "updated", spark=spark)
    assert (verdict.state, verdict.rows_late, verdict.rows_replayed) == ("late", 1, 2)
    assert replay(project, "updated", spark).late == 1
    assert counts_in(root, "updated") == counts([*BATCHES, *more])
    assert verify(project, "updated", spark=spark).state == "equal"


@pytest.mark.capability("OP-WM-04")
@pytest.mark.parametrize(
    ("query", "written", "deleted", "most"), rounds([("small", 1, 1, 2), ("appended", 2, 0, 9)]), ids=["small", "all"]
)
def test_in_append_mode_rows_are_replaced_and_those_that_are_no_more_deleted(
    spark: SparkSession, tmp_path: Path, query: str, written: int, deleted: int, most: int
) -> None:
    batches = [*BATCHES, [("14:00", "z")], [("14:00", "z")]]
    root = late_project.write_project(tmp_path / "p", batches)
    project = run(root, query, spark)
    assert replay(project, query, spark) == Replayed(late=2, written=written, deleted=deleted)
    verdict = verify(project, query, spark=spark)
    assert (verdict.state, verdict.rows_late, verdict.rows_replayed) == ("open", 0, 2)
    closed = {key: count for key, count in counts(batches).items() if key[1] < "14:00" and count <= most}
    assert counts_in(root, query) == closed


@pytest.mark.long
def test_a_row_late_for_one_window_only_is_brought_back_into_that_one(spark: SparkSession, root: Path) -> None:
    project = run(root, "sliding", spark)
    before = counts_in(root, "sliding")
    assert replay(project, "sliding", spark).late == 3
    after = counts_in(root, "sliding")
    changed = {key: count for key, count in after.items() if before.get(key) != count}
    assert changed == {("a", "12:00"): 3, ("a", "11:50"): 3, ("a", "12:30"): 1}
    assert verify(project, "sliding", spark=spark).state == "equal"


KILLED = """
import os, signal, sys
from headrace.api import load
from headrace.generations.register import layout_named as layout_in
from headrace.frames.project_session import session
from headrace.verifier.late_rows import apply_late_rows

def die(boundary, batch):
    if boundary == "inside-transaction":
        os.kill(os.getpid(), signal.SIGKILL)

project = load(sys.argv[1])
layout = layout_in(project.storage, "updated")
apply_late_rows(project, project.queries["updated"], layout, session(project, purpose="short"), reached=die)
"""


@pytest.mark.capability("OP-WM-04")
def test_cut_off_at_any_moment_and_given_again_it_comes_to_the_same_result(spark: SparkSession, root: Path) -> None:
    project = load(root)
    before, layout = counts_in(root, "updated"), layout_in(project.storage, "updated")

    def halted(boundary: Boundary) -> dict[tuple[str, str], int]:
        def halt(reached: Boundary, batch: int) -> None:
            if reached == boundary:
                raise Stop

        with pytest.raises(Stop):
            apply_late_rows(project, project.queries["updated"], layout, spark, reached=halt)
        return counts_in(root, "updated")

    assert halted("before-transaction") == before
    assert halted("inside-transaction") == before
    assert read(root, REPLAYS) == []
    assert verify(project, "updated", spark=spark).state == "late"
    assert halted("after-transaction") == counts(BATCHES)
    assert replay(project, "updated", spark) == Replayed(late=0, written=0, deleted=0)
    assert counts_in(root, "updated") == counts(BATCHES)
    assert len(read(root, REPLAYS)) == 1
    assert verify(project, "updated", spark=spark).state == "equal"


@pytest.mark.long
def test_a_kill_inside_its_transaction_leaves_the_rows_as_they_were(spark: SparkSession, root: Path) -> None:
    before = counts_in(root, "updated")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(root)], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (counts_in(root, "updated"), read(root, REPLAYS)) == (before, [])
    assert verify(load(root), "updated", spark=spark).state == "late"


REFUSED = {
    "keyless": "no key",
    "filed": "cannot replace single rows",
    "sessions": "one session of two",
    "distinct": "is not an aggregation",
    "chained": "more than one operator with state",
    "unplaced": "holds no window or event time",
    "ordered": "depends on the order in which rows come",
}


@pytest.fixture(scope="module")
def begun(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose queries that are to be refused have run over one file, all at once."""
    root = late_project.write_project(tmp_path_factory.mktemp("refused") / "p", BATCHES[:1])
    project = load(root)
    assert hr.run(project, list(REFUSED), trigger=hr.available_now, spark=sessions.with_connectors(())).exit_code == 0
    return project


@pytest.mark.parametrize(("query", "why"), REFUSED.items())
def test_where_a_group_may_still_change_rows_are_not_brought_back(
    query: str, why: str, begun: Project, spark: SparkSession
) -> None:
    with pytest.raises(HeadraceError) as refused:
        late(begun, query, replay=True, spark=spark)
    (finding,) = refused.value.findings
    assert (finding.code, why in finding.what) == ("HR691", True), finding
    assert f"headrace late {query} --export" in finding.fix


def test_while_the_query_runs_nothing_is_brought_back(spark: SparkSession, root: Path) -> None:
    project = load(root)
    before = counts_in(root, "updated")
    with History.open(history_file(project.storage)) as history:
        history.begin_run("updated", pid=os.getpid(), mode="update", trigger="", sink="sqlite", generation=1)
    with pytest.raises(HeadraceError) as refused:
        late(project, "updated", replay=True, spark=spark)
    assert [finding.code for finding in refused.value.findings] == ["HR526"]
    assert counts_in(root, "updated") == before
    assert late(project, "updated", spark=spark).count == 2


@pytest.mark.long
def test_a_batch_that_comes_between_stops_it(spark: SparkSession, root: Path) -> None:
    project = load(root)
    more = [[("13:05", "a")]]

    def go_on(boundary: Boundary, batch: int) -> None:
        if boundary == "before-transaction":
            land(root, *more)
            run(root, "updated", spark)

    layout = layout_in(project.storage, "updated")
    with pytest.raises(HeadraceError) as refused:
        apply_late_rows(project, project.queries["updated"], layout, spark, reached=go_on)
    assert [finding.code for finding in refused.value.findings] == ["HR693"]
    verdict = verify(project, "updated", spark=spark)
    assert (verdict.state, verdict.rows_late, verdict.rows_replayed) == ("late", 2, 0)
    assert replay(project, "updated", spark).late == 2
    assert counts_in(root, "updated") == counts([*BATCHES, *more])


def test_only_a_result_that_is_right_is_changed(spark: SparkSession, root: Path) -> None:
    with sqlite3.connect(root / "result.db") as wrong:
        wrong.execute("UPDATE updated SET count = 9 WHERE who = 'b'")
    with pytest.raises(HeadraceError) as refused:
        late(load(root), "updated", replay=True, spark=spark)
    (finding,) = refused.value.findings
    assert (finding.code, "headrace verify updated" in finding.fix) == ("HR692", True)
    assert counts_in(root, "updated")["a", "12:00"] == 2
    with sqlite3.connect(root / "result.db") as older:
        older.execute("UPDATE updated SET count = 2 WHERE who = 'b'")
        older.execute("DELETE FROM _headrace_ledger WHERE batch = (SELECT max(batch) FROM _headrace_ledger)")
    with pytest.raises(HeadraceError, match="HR692"):
        late(load(root), "updated", replay=True, spark=spark)


def test_late_rows_of_overlapping_windows_are_counted_in_code_that_compiles(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The other tests' session generates none; a user's would compute without it what does not compile."""
    root = late_project.write_project(tmp_path / "p")
    pipeline = (root / "pipeline.py").read_text()
    (root / "pipeline.py").write_text(pipeline.replace('"20 minutes", "10 minutes"', '"10 minutes", "2 minutes"'))
    run(root, "sliding", spark)
    generated = {"wholeStage": "true", "factoryMode": "FALLBACK", "fallback": "false"}
    with apply_settings(spark, {f"spark.sql.codegen.{name}": value for name, value in generated.items()}):
        assert verify(load(root), "sliding", spark=spark).state == "late"
