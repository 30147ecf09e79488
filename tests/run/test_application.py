"""A project has one id for life, whoever makes it first, and a fenced driver has an exit code of its own."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import Finding, PlatformError
from headrace.model import Project
from headrace.run.application import FILE, application, known_application
from headrace.run.result import Outcome, OutcomeState, RunResult

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
    with pytest.raises(PlatformError, match="HR458"):
        application(project)


ENDS: list[tuple[list[tuple[OutcomeState, str]], int]] = [
    ([("finished", ""), ("stopped", "")], 0),
    ([("finished", ""), ("failed", "HR405")], 1),
    ([("failed", "HR405"), ("failed", "HR409")], 3),
]


@pytest.mark.parametrize(("ends", "code"), ENDS)
def test_a_fenced_driver_has_an_exit_code_of_its_own(ends: list[tuple[OutcomeState, str]], code: int) -> None:
    outcomes = [
        Outcome(query=f"q{number}", state=state, finding=Finding(code=said, what="w") if said else None)
        for number, (state, said) in enumerate(ends)
    ]
    assert RunResult(outcomes=tuple(outcomes)).exit_code == code
