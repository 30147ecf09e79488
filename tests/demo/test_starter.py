"""The project that `init` and `demo` write."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.demo.starter import LANDING, Form, write_project
from headrace.errors import HeadraceError

pytestmark = pytest.mark.plain

FILES: dict[Form, set[str]] = {
    "python": {"headrace.yml", "headrace.schema.json", "pipeline.py", "README.md", ".gitignore"},
    "sql": {"headrace.yml", "headrace.schema.json", "queries/action_counts.sql", "README.md", ".gitignore"},
}


@pytest.mark.parametrize("form", ["python", "sql"])
def test_it_names_what_it_writes_and_the_same_each_time(tmp_path: Path, form: Form) -> None:
    written = write_project(tmp_path / "one" / "phones", form=form)
    write_project(tmp_path / "two" / "phones", form=form)
    assert ".env" in (tmp_path / "one/phones/.gitignore").read_text().splitlines()
    there = {str(path.relative_to(tmp_path / "one/phones")) for path in (tmp_path / "one").rglob("*") if path.is_file()}
    assert {str(path) for path in written} == there
    assert there == FILES[form] | {"tests/action_counts.yml"} | {
        f"{LANDING}/events-{number:06d}.json" for number in range(3)
    }
    for name in there:
        assert (tmp_path / "one/phones" / name).read_bytes() == (tmp_path / "two/phones" / name).read_bytes()


@pytest.mark.parametrize("form", ["python", "sql"])
def test_the_name_of_the_directory_is_the_name_of_the_project(tmp_path: Path, form: Form) -> None:
    write_project(tmp_path / "phones", form=form)
    assert "name: phones\n" in (tmp_path / "phones/headrace.yml").read_text()
    assert (tmp_path / "phones/README.md").read_text().startswith("# phones\n")


@pytest.mark.parametrize("form", ["python", "sql"])
def test_the_structure_of_the_project_is_sound(tmp_path: Path, form: Form) -> None:
    from headrace.api import check, load

    write_project(tmp_path / "phones", form=form)
    project = load(tmp_path / "phones")
    assert list(project.queries) == ["action_counts"]
    result = check(project, spark=False)
    assert result.findings == ()
    assert result.guarantees["action_counts"].level == "exactly once"


def test_an_empty_directory_will_do(tmp_path: Path) -> None:
    assert write_project(tmp_path, event_files=0)
    assert (tmp_path / LANDING).is_dir()


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_what_is_there_already_is_left_alone(tmp_path: Path, kind: str) -> None:
    mine = tmp_path / "mine" if kind == "file" else tmp_path / "mine" / "notes.txt"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(HeadraceError, match="HR093"):
        write_project(tmp_path / "mine")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"
