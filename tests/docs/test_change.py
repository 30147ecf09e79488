"""The tutorial about a query that is changed, typed as it stands: every command runs, and says what the page says."""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli.entry import main
from tests import in_session
from tests.docs.blocks import ROOT, Block, blocks, not_printed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "tutorial" / "change-a-query.md"


def shown_lines(block: Block) -> list[list[str]]:
    """What the page shows below each command of a block."""
    groups: list[list[str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            groups.append([])
        else:
            groups[-1].append(line)
    return groups


def test_the_tutorial_goes_as_it_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_session.lend(spark, monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    commands = []
    for block in (candidate for candidate in blocks() if candidate.page == PAGE):
        if name := block.word("file"):
            (tmp_path / name).write_text(block.text)
        for command, wanted in zip(block.commands(), shown_lines(block), strict=True) if "run" in block.words else ():
            capsys.readouterr()
            code, printed = main(shlex.split(command)[1:]), capsys.readouterr().out.splitlines()
            refused = any(line.startswith("!") or "(HR" in line for line in wanted)
            assert code in ((1, 78) if refused else (0,)), f"$ {command}\n{chr(10).join(printed)}"
            missing = not_printed(wanted, printed)
            assert missing is None, f"{missing} is not there:\n$ {command}\n{chr(10).join(printed)}"
            commands.append(command)
    assert "headrace rebuild totals --yes" in commands
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert set(database.execute("SELECT customer, orders, total FROM totals")) == {("ann", 2, 37), ("bob", 2, 17)}
