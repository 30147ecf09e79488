"""The tutorial on tests, typed as it stands: its cases are run, and its test in Python."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.cli import main
from headrace.testing import timeline
from tests.docs.blocks import ROOT, blocks, not_printed
from tests.docs.test_change import shown_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = ROOT / "docs" / "tutorial" / "test-a-query.md"


def test_the_tutorial_goes_as_it_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    commands, functions = [], dict[str, Callable[..., None]]()
    for block in (candidate for candidate in blocks() if candidate.page == PAGE):
        if name := block.word("file"):
            (tmp_path / name).write_text(block.text)
        if block.language == "python":
            names: dict[str, Any] = {}
            exec(compile(block.text, str(block), "exec"), names)
            functions |= {name: value for name, value in names.items() if name.startswith("test_")}
        for command, wanted in zip(block.commands(), shown_lines(block), strict=True) if "run" in block.words else ():
            capsys.readouterr()
            code, printed = main(shlex.split(command)[1:]), capsys.readouterr().out.splitlines()
            rows = [" ".join(line.split()) for line in printed]
            missing = not_printed([" ".join(line.split()) for line in wanted], rows)
            assert missing is None, f"{missing} is not there:\n$ {command}\n{chr(10).join(printed)}"
            assert code == (0 if wanted[-1].endswith(" 0 failed") else 1)
            commands.append(command)
    fuzzing = "headrace test firsts --fuzz 20 --seed 7 --seconds 300"
    assert commands == ["headrace test", "headrace test totals", "headrace test", fuzzing]
    assert list(functions) == ["test_a_crash_changes_nothing", "test_totals_do_not_depend_on_the_order"]
    functions["test_a_crash_changes_nothing"](partial(timeline, hr.load(tmp_path), spark=spark))
    functions["test_totals_do_not_depend_on_the_order"](spark=spark, headrace_project=hr.load(tmp_path))
