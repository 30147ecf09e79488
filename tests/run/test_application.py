"""A project has one id for life, whoever makes it first, and a fenced driver has an exit code of its own."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.contract import Outcome, OutcomeState
from headrace.control.board import RunResult
from headrace.errors import Fenced, Finding, PlatformError
from headrace.model import Project
from headrace.queries.application import FILE, application, known_application

pytestmark = pytest.mark.plain


def test_many_that_make_it_at_once_get_one(tmp_path: Path) -> None:
    project = Project(name="phones", root=tmp_path)
    assert known_application(project) is None
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: application(project).id, range(40)))
    assert len(found) == 1
    assert [file.name for file in project.storage.iterdir()] == [FILE]


def test_a_moved_project_stays_the_same_and_knows_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    before = application(Project(name="phones", root=tmp_path / "old"))
    shutil.move(tmp_path / "old", tmp_path / "new")
    after = application(Project(name="phones", root=tmp_path / "new"))
    assert after.id == before.id
    assert after.facts()["roots"] == (tmp_path / "new", tmp_path / "old")
    assert known_application(Project(name="phones", root=tmp_path / "new")) == after


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    project = Project(name="phones", root=tmp_path)
    application(project)
    (project.storage / FILE).write_text("{")
    with pytest.raises(PlatformError, match="HR584"):
        application(project)


ENDS: list[tuple[list[tuple[OutcomeState, bool]], int]] = [
    ([("finished", False), ("stopped", False)], 0),
    ([("finished", False), ("failed", False)], 1),
    ([("failed", False), ("failed", True)], 3),
]


@pytest.mark.parametrize(("ends", "code"), ENDS)
def test_a_fenced_driver_has_an_exit_code_of_its_own(ends: list[tuple[OutcomeState, bool]], code: int) -> None:
    outcomes = [Outcome(query=f"q{number}", state=state, fenced=fenced) for number, (state, fenced) in enumerate(ends)]
    assert RunResult(outcomes=tuple(outcomes)).exit_code == code
    assert Fenced(Finding(code="HR409", what="w")).exit_code == 3
