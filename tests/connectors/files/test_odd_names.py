"""Files of odd names are read once each, and found again: by the lag, by verify, and in the archive."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.history.lag import lag
from headrace.verifier.proof import verify
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.contract import Outcome

pytestmark = [pytest.mark.spark, pytest.mark.capability("SRC-FILE-01")]

NAMES = (
    "a b", "two  blanks ", "ä", "a\u0308", "日本", "😀", "100%", "a%20b", "%41", "a+b", "a#b", "a&b=c", "a;b,c", "it's",
    'in "quotes"', "[x]", "{y}", "{y,z}", "a*b", "a?b", "~home", "$VAR", "(1)", "a@b", "a!b", "a|b", "`tick`", "<tag>",
    "a\\b", "day=1", "-n",
)  # fmt: skip
PROJECT = """
import headrace as hr

events = hr.source.files("landing", format="json", schema="v INT", max_files_per_trigger=7{more})


@hr.query(sink=hr.sink.sqlite("out.db", table="taken"), trigger="available-now")
def taken(events):
    return events
"""
ARCHIVED = ', clean_source="archive", source_archive_dir="kept"'


def land(root: Path, name: str, number: int) -> Path:
    file = root / "landing" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"v": number}) + "\n")
    os.utime(file, (1_700_000_000 + number,) * 2)
    return file


def ran(root: Path, spark: SparkSession) -> Outcome:
    [end] = hr.run(hr.load(root), spark=spark).outcomes
    assert end.finding is None, end.finding
    return end


@pytest.mark.parametrize("more", rounds(["", ARCHIVED]), ids=["kept", "archived"])
def test_files_of_odd_names_are_read_once_each_and_found_again(spark: SparkSession, tmp_path: Path, more: str) -> None:
    root = tmp_path / "a project, 100% odd"
    root.mkdir()
    (root / "headrace.yml").write_text("name: p\n")
    (root / "pipeline.py").write_text(PROJECT.format(more=more))
    half = len(NAMES) // 2
    for number, name in enumerate(NAMES[:half]):
        land(root, name, number)
    assert ran(root, spark).rows == half
    assert ran(root, spark).rows == 0
    for number, name in enumerate(NAMES[half:], half):
        land(root, name, number)
    second = ran(root, spark)
    assert rows(root / "out.db", "SELECT v FROM taken ORDER BY v") == [(number,) for number in range(len(NAMES))]
    assert second.rows == len(NAMES) - half, second
    assert ran(root, spark).rows == 0
    assert rows(root / "out.db", "SELECT v FROM taken ORDER BY v") == [(number,) for number in range(len(NAMES))]
    project = hr.load(root)
    waiting = lag(project, project.queries["taken"], layout_in(project.storage, "taken", 1))
    assert waiting is not None
    assert (waiting.count, waiting.left_out) == (0, 0)
    verdict = verify(project, "taken", spark=spark)
    assert verdict.state == "equal", verdict
    if more:
        moved = {file.name for file in (root / "kept").rglob("*.json")}
        assert len(moved) >= half
        assert moved <= {f"{name}.json" for name in NAMES}


def test_a_name_that_spark_cannot_read_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop takes a colon for the end of a scheme."""
    (tmp_path / "headrace.yml").write_text("name: p\n")
    (tmp_path / "pipeline.py").write_text(PROJECT.format(more=""))
    land(tmp_path, "good", 0)
    bad = land(tmp_path, "a:b", 1)
    [end] = hr.run(hr.load(tmp_path), spark=spark).outcomes
    assert end.finding is not None
    assert end.finding.code == "HR304"
    assert f"the name '{bad.name}' of a file holds a colon" in end.finding.what
    land(tmp_path, "copied", 1)
    for more in (', options={"ignoreCorruptFiles": "true"}', ""):
        (tmp_path / "pipeline.py").write_text(PROJECT.format(more=more))
        [end] = hr.run(hr.load(tmp_path), spark=spark, accept_forward=True).outcomes
        assert end.finding is None, end
    assert rows(tmp_path / "out.db", "SELECT v FROM taken ORDER BY v") == [(0,), (1,)]


@pytest.mark.parametrize("name", ["[x]", "a{b}", "what?"])
def test_a_directory_whose_name_spark_takes_for_a_pattern_is_refused(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    root = tmp_path / name / "p"
    root.mkdir(parents=True)
    (root / "pipeline.py").write_text(PROJECT.format(more=""))
    land(root, "a", 0)
    [end] = hr.run(hr.load(root), spark=spark).outcomes
    assert end.finding is not None
    assert (end.finding.code, f"'{tmp_path / name}'" in end.finding.what) == ("HR332", True)
