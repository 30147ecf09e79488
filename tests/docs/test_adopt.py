"""The how-to about a job of plain PySpark that is adopted, really run."""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli.entry import main
from tests.changes.former_jobs import PLAIN
from tests.docs.blocks import ROOT, blocks, of_language

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "how-to" / "adopt-a-pyspark-query.md"


def test_a_job_is_adopted_and_continues(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = tmp_path / "landing" / "orders"
    orders.mkdir(parents=True)
    (orders / "1.json").write_text('{"customer": "a", "amount": 3}\n{"customer": "b", "amount": 4}\n')
    for block in blocks():
        if block.page == PAGE and (name := block.word("file")) is not None:
            (tmp_path / name).write_text(block.text)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE totals (customer TEXT PRIMARY KEY, total BIGINT)")
    job = next(block for block in of_language("python") if block.page == PAGE).text
    # Spark's own working directory is another one.
    for path in ("landing/orders", "checkpoints/totals", "shop.db"):
        job = job.replace(f'"{path}"', f'"{tmp_path / path}"')
    before = {key: spark.conf.get(key, None) for key in PLAIN}
    try:
        for key, value in PLAIN.items():
            spark.conf.set(key, value)
        exec(compile(job, str(PAGE), "exec", dont_inherit=True), {"__name__": "job"})
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)
    (orders / "2.json").write_text('{"customer": "a", "amount": 5}\n')
    monkeypatch.chdir(tmp_path)
    shown = [block for block in of_language("console") if block.page == PAGE and "run" in block.words]
    for command in (command for block in shown for command in block.commands()):
        assert main(shlex.split(command)[1:]) == 0, command
    output = capsys.readouterr().out
    assert "2 rows of table 'totals'" in output
    assert "the result was compared with the batch answer: equal" in output
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert set(database.execute("SELECT * FROM totals")) == {("a", 8), ("b", 4)}
