"""The how-to about going back to an earlier batch, typed as it stands."""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.cli.entry import main
from tests.docs.blocks import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "how-to" / "go-back-to-an-earlier-batch.md"


def test_a_query_goes_back_as_the_page_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    for number, row in enumerate(('"a", "amount": 1', '"b", "amount": 2', '"a", "amount": 40', '"c", "amount": 3')):
        file = tmp_path / "landing" / f"{number}.json"
        file.write_text(f'{{"customer": {row}}}\n')
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    typed = 0
    for block in (candidate for candidate in blocks() if candidate.page == PAGE):
        if name := block.word("file"):
            (tmp_path / name).write_text(block.text)
        if block.language != "console":
            continue
        if not typed:
            hr.run(hr.load("."), spark=spark)
        for part in block.text.split("$ ")[1:]:
            command, *wanted = part.splitlines()
            capsys.readouterr()
            words = shlex.split(command)[1:]
            code = hr.run(hr.load("."), spark=spark).exit_code if words[0] == "run" else main(words)
            output = capsys.readouterr().out
            assert code == 0, f"$ {command}\n{output}"
            assert [line for line in wanted if line not in output] == [], f"$ {command}\n{output}"
            typed += 1
    assert typed == 9
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert set(database.execute("SELECT * FROM totals")) == {("a", 41), ("b", 2)}
