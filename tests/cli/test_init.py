"""`headrace init`: a project, and the commands to type next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli import main

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("options", [[], ["--sql"]], ids=["python", "sql"])
def test_it_writes_a_project_and_says_what_to_type(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "phones"), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"a project was written to '{tmp_path / 'phones'}': ")
    assert lines[2] == f"  cd {tmp_path / 'phones'}"
    assert [line.split("headrace ")[-1] for line in lines[3:]] == ["check", "run --available-now", "verify"]
    assert (tmp_path / "phones/pipeline.py").exists() != bool(options)


@pytest.mark.parametrize("options", [[], ["--sql"]], ids=["python", "sql"])
def test_what_it_writes_is_sound(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", str(tmp_path / "phones"), *options])
    capsys.readouterr()
    assert main(["check", "-C", str(tmp_path / "phones"), "--no-spark"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("action_counts: exactly once")
    assert output.endswith("1 query, 0 errors, 0 warnings\n")


def test_with_json_the_files_and_the_next_commands_are_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "phones"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["project"] == str(tmp_path / "phones")
    assert "pipeline.py" in document["files"]
    assert document["next"][0] == f"cd {tmp_path / 'phones'}"


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert "HR093" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
