"""A storage is restored from a copy that read the log before a change and the directories after it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.changes import change as changing
from headrace.cli.entry import main
from headrace.errors import HeadraceError
from headrace.generations.log import FOLDER, LogRecord, log_of
from headrace.model import Project
from headrace.storage.numbered import file_of, numbers_in
from tests.changes.rebuild import scenes
from tests.changes.test_marks import CHANGES
from tests.changes.test_reset import Killed, kill_at
from tests.changes.test_rewind import Driver, at, make_project, state
from tests.connectors.sql.databases import EVERY_WITHOUT_SPARK, Database, database  # noqa: F401
from tests.registered import layout_in
from tests.runner.projects import rows

WAY = r"HR410.*older copy[\s\S]*headrace change resume totals"


def record_of(project: Project) -> LogRecord:
    record = log_of(layout_in(project.storage, "totals"))
    assert record is not None
    return record


def lose_log(project: Project, query: str = "totals") -> None:
    """Delete the records of all changes of a query."""
    folder = layout_in(project.storage, query).folder / FOLDER
    for number in numbers_in(folder)[1:]:
        file_of(folder, number).unlink()


def standing(record: LogRecord) -> tuple[Any, ...]:
    return record.kind, record.change, record.live, record.kept, record.building


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "p")


def drive(project: Project, batch: int) -> None:
    """A driver begins and makes a batch."""
    driver = Driver(project)
    for planned in ("offsets", "commits", "sources/events"):
        folder = driver.layout.checkpoint / planned
        shutil.copy(folder / str(batch - 1), folder / str(batch))
    driver.write(batch, {"a": 7})


def resume(project: Project, **more: Any) -> Any:
    change = hr.change(project, "totals")
    assert change is not None
    return change.resume(**more)


@pytest.mark.plain
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_the_log_lacks_is_entered_into_it_and_can_be_taken_back(
    project: Project, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(project)
    CHANGES[change](project).apply()
    newest = record_of(project)
    lose_log(project)
    with pytest.raises(HeadraceError, match=WAY):
        Driver(project)
    command = ["totals", "-C", str(project.root)]
    assert main(["change", "status", *command]) == 0
    assert f"which lacks a {change} that the sink has seen" in capsys.readouterr().out
    for verb in ("undo", "discard"):
        assert main(["change", verb, *command, *(["--yes"] if verb == "discard" else [])]) == 1
    assert "first headrace change resume totals" in capsys.readouterr().err
    assert main(["change", "resume", *command]) == 0
    assert standing(record_of(project)) == standing(newest)
    Driver(project, generation=newest.live.generation)
    assert main(["change", "undo", *command]) == 0
    assert state(project) == before


@pytest.mark.plain
def test_batches_that_came_after_the_change_stay(project: Project) -> None:
    hr.rewind(project, "totals", to_batch=1).apply()
    drive(project, 2)
    before = state(project)
    lose_log(project)
    assert resume(project).batch == 2
    assert state(project) == before
    drive(project, 3)


@pytest.mark.plain
def test_of_several_changes_the_newest_that_the_sink_has_seen_is_entered_with_all_that_is_kept(
    project: Project,
) -> None:
    hr.rewind(project, "totals", to_batch=1).apply()
    hr.reset(project, "totals", result="keep").apply()
    newest = record_of(project)
    with pytest.raises(Killed):  # A reset that the sink has not seen.
        hr.reset(project, "totals", result="drop").apply(reached=kill_at("recorded"))
    lose_log(project)
    (layout_in(project.storage, "totals").folder / "g7.30").mkdir()
    resume(project)
    record = record_of(project)
    assert standing(record) == standing(newest)
    assert (record.number, record.following) == (31, 8), "above all that is in use"


@pytest.mark.plain
def test_a_change_that_was_resumed_is_known_by_each_of_its_records(project: Project) -> None:
    with pytest.raises(Killed):
        hr.rewind(project, "totals", to_batch=1).apply(reached=kill_at("made"))
    resume(project)
    assert rows(project.root / "out.db", "SELECT change_number FROM _headrace_epochs") == [(3,)]
    lose_log(project)
    resume(project)
    assert state(project) == at(1)


@pytest.mark.plain
@pytest.mark.parametrize("step", ["history", "done"])
def test_one_that_is_killed_while_it_is_entered_is_entered_by_the_next_command(project: Project, step: str) -> None:
    hr.rewind(project, "totals", to_batch=1).apply()
    lose_log(project)
    with pytest.raises(Killed):
        resume(project, reached=kill_at(step))
    if step == "history":
        resume(project)
    Driver(project)
    assert state(project) == at(1)


KILLED = """
import os, signal, sys
import headrace as hr
def kill(step):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
hr.rewind(hr.load(sys.argv[1]), "totals", to_batch=1).apply(reached=kill)
"""


@pytest.mark.plain
@pytest.mark.parametrize(("step", "is_seen"), [("made", False), ("sink", True)])
def test_a_change_whose_process_was_killed_is_entered_if_the_sink_has_seen_it(
    project: Project, step: str, is_seen: bool
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(project.root), step], env=dict(os.environ), check=False)
    assert killed.returncode == -signal.SIGKILL
    lose_log(project)
    if is_seen:
        resume(project)
    assert hr.change(project, "totals") is None or is_seen
    Driver(project)
    assert state(project) == at(1 if is_seen else 2)


def another_token(project: Project) -> None:
    with closing(Database("sqlite", str(project.root / "out.db")).connect()) as connection:
        connection.execute("UPDATE _headrace_epochs SET change_token = 'another'")


def without_its_directory(project: Project) -> None:
    layout = layout_in(project.storage, "totals")
    layout.made_by.unlink()


def damaged(project: Project) -> None:
    layout_in(project.storage, "totals").made_by.write_text("{")


def undone(project: Project) -> None:
    """The sink has seen that it was taken back, and the copy has its directory still."""
    home = layout_in(project.storage, "totals").home
    shutil.copytree(home, home.parent / "aside")
    hr.rewind(project, "totals").undo()
    (home.parent / "aside").rename(home)


@pytest.mark.plain
@pytest.mark.parametrize("otherwise", [another_token, without_its_directory, damaged, undone])
def test_a_directory_that_is_not_that_of_the_sinks_mark_is_never_entered(
    project: Project, otherwise: Callable[[Project], None]
) -> None:
    hr.rewind(project, "totals", to_batch=1).apply()
    otherwise(project)
    lose_log(project)
    with pytest.raises(HeadraceError, match="HR410") as refused:
        Driver(project)
    assert "change resume" not in str(refused.value)
    assert hr.change(project, "totals") is None
    assert record_of(project).number == 1


@pytest.mark.plain
def test_a_change_that_came_between_the_question_and_the_lock_is_not_passed_over(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    hr.rewind(project, "totals", to_batch=1).apply()
    lose_log(project)
    change = hr.change(project, "totals")
    assert change is not None
    take = changing.driver_lock.take

    def meanwhile(*given: Any, **more: Any) -> Any:
        another_token(project)
        return take(*given, **more)

    monkeypatch.setattr(changing.driver_lock, "take", meanwhile)
    with pytest.raises(HeadraceError, match="HR582"):
        change.resume()
    assert record_of(project).number == 1


@pytest.mark.parametrize("database", EVERY_WITHOUT_SPARK, indirect=True)
@pytest.mark.parametrize("step", ["sink", ""])
def test_a_swap_that_the_log_lacks_is_ended(database: Database, tmp_path: Path, step: str) -> None:  # noqa: F811
    project = scenes.project_of(tmp_path / "p", database)
    scenes.scene(project)
    if step:
        with pytest.raises(scenes.Killed):
            scenes.swap_in(project, scenes.kill_at(step))
    else:
        scenes.swap_in(project)
    lose_log(project)
    assert resume(project).done == "swapped"
    assert scenes.state(project, database) == scenes.NEW
    assert hr.rebuild(project, "totals").undo().done == "rolled-back"
    assert scenes.state(project, database) == scenes.BUILT
