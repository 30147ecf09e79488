"""The how-to about DStreams: its operations, each as a query, really run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run, verify
from tests.docs.blocks import projects
from tests.runner.projects import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = {
    "lines": [("12:01", "rain snow"), ("12:07", "rain spam")],
    "more": [("12:08", "snow  rain"), ("12:11", "hail")],
}


@pytest.mark.spark
@pytest.mark.capability("DSTREAM-01")
def test_the_operations_of_a_dstream_are_queries(spark: SparkSession, tmp_path: Path) -> None:
    (block,) = projects()["dstreams"]
    (tmp_path / str(block.word("file"))).write_text(block.text)
    (tmp_path / "spam.txt").write_text("SPAM \n")
    for source, lines in LINES.items():
        (tmp_path / "landing" / source).mkdir(parents=True)
        text = "".join(json.dumps({"time": f"2026-01-01T{at}:00Z", "line": line}) + "\n" for at, line in lines)
        (tmp_path / "landing" / source / "1.json").write_text(text)
    result = run(load(tmp_path), spark=spark)
    assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
    assert set(rows(tmp_path / "result.db", "SELECT * FROM counts")) == {("rain", 3), ("snow", 2), ("hail", 1)}
    assert set(rows(tmp_path / "result.db", "SELECT * FROM windows WHERE word = 'rain'")) == {
        *(("11:55", "rain", 1), ("12:00", "rain", 3), ("12:05", "rain", 2)),
    }
    saved = [
        json.loads(line)["word"] for file in tmp_path.glob("saved/*/*.json") for line in file.read_text().splitlines()
    ]
    assert sorted(saved) == ["hail", "rain", "rain", "rain", "snow", "snow"]
    assert verify(load(tmp_path), "counts", spark=spark).exit_code == 0
