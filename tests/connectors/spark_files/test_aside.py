"""A directory that was set aside comes back, or the fault says whether an earlier attempt may have brought it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.connectors.spark_files import aside
from headrace.contract import SinkContext
from headrace.errors import AttemptFailed, NothingChanged

pytestmark = pytest.mark.plain


@pytest.fixture
def context(tmp_path: Path) -> SinkContext:
    return SinkContext(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")


@pytest.fixture
def directory(tmp_path: Path, context: SinkContext) -> Path:
    """The directory of a result that was set aside."""
    directory = tmp_path / "lines"
    directory.mkdir()
    (directory / "part-0.json").write_text("{}\n")
    aside.set_aside(directory, context)
    return directory


def test_a_directory_comes_back_once(directory: Path, context: SinkContext) -> None:
    for _ in range(2):
        aside.bring_back(directory, context)
        assert [file.name for file in directory.iterdir()] == ["part-0.json"]


def test_files_in_its_place_are_a_refusal_of_the_undo_itself(directory: Path, context: SinkContext) -> None:
    directory.mkdir()
    (directory / "part-1.json").write_text("{}\n")
    with pytest.raises(NothingChanged, match="HR583") as refused:
        aside.bring_back(directory, context)
    assert not isinstance(refused.value, AttemptFailed)


def test_a_file_system_that_refuses_fails_one_attempt(
    directory: Path, context: SinkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(aside, "move", refuse)
    with pytest.raises(AttemptFailed, match=r"HR587.*Permission denied"):
        aside.bring_back(directory, context)
