"""Rows that a source quarantines are read again after their batch, while Spark moves its files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.connectors.files.source import Files
from headrace.connectors.spark_files import prefix
from headrace.contract import SourcePrefix
from headrace.errors import Finding
from headrace.runner import source_health
from tests.registered import layout_in
from tests.runner.projects import write_project
from tests.runner.test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
BODY = """
kept = hr.source.files("landing", format="json", schema="name STRING, amount INT", on_bad_row="quarantine",
                       clean_source="archive", source_archive_dir="archive")

@hr.query(sink=hr.sink.sqlite("out.db", table="copies"))
def copies(kept):
    return kept
"""


def test_a_file_that_is_archived_while_it_is_read_is_read_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", BODY, batches=[[{"name": "a", "amount": 1}, {"name": "b", "amount": "many"}]])
    file, looked = root / "landing" / "0000.json", list[str]()
    archived = Path(f"{root}/archive{file}")
    original = Files.rejected_rows

    def moved_after(self: Files, spark: SparkSession, part: SourcePrefix) -> DataFrame | None:
        frame = original(self, spark, part)
        looked.append(str(file.exists()))
        if file.exists():
            archived.parent.mkdir(parents=True)
            file.rename(archived)
        return frame

    monkeypatch.setattr(Files, "rejected_rows", moved_after)
    project = hr.load(root)
    assert hr.run(project, trigger=hr.available_now, spark=spark).exit_code == 0
    (apart,) = (layout_in(project.storage, "copies").quarantine / "kept").iterdir()
    assert [json.loads(line)["batch"] for line in apart.read_text().splitlines()] == [0]
    assert looked == ["True", "False"]


def test_a_file_that_is_archived_before_spark_looks_for_it_is_read_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", BODY, batches=[[{"name": "a", "amount": 1}, {"name": "b", "amount": "many"}]])
    file, looked = root / "landing" / "0000.json", list[bool]()
    archived = Path(f"{root}/archive{file}")
    original = prefix.places

    def moved_after(taken: Sequence[tuple[str, int]], path: str, archive: str | None) -> list[prefix.FileGroup]:
        groups = original(taken, path, archive)
        looked.append(file.exists())
        if file.exists():
            archived.parent.mkdir(parents=True)
            file.rename(archived)
        return groups

    monkeypatch.setattr(prefix, "places", moved_after)
    project = hr.load(root)
    assert hr.run(project, trigger=hr.available_now, spark=spark).exit_code == 0
    (apart,) = (layout_in(project.storage, "copies").quarantine / "kept").iterdir()
    assert [json.loads(line)["batch"] for line in apart.read_text().splitlines()] == [0]
    assert looked == [True, False]


@pytest.mark.parametrize("empty", [1, 9], ids=["then all", "never all"])
def test_rows_that_do_not_come_when_they_are_read_again_are_asked_for_and_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: int
) -> None:
    root = write_project(tmp_path / "p", BODY, batches=[[{"name": "a", "amount": 1}, {"name": "b", "amount": "many"}]])
    original, readings = Files.rejected_rows, list[int]()

    def fewer(self: Files, spark: SparkSession, part: SourcePrefix) -> DataFrame | None:
        readings.append(len(readings))
        frame = original(self, spark, part)
        return frame.limit(0) if frame is not None and len(readings) <= empty else frame

    monkeypatch.setattr(Files, "rejected_rows", fewer)
    project, recorder = hr.load(root), Recorder()
    assert hr.run(project, trigger=hr.available_now, spark=spark, reporter=recorder).exit_code == 0
    notes = [finding.what for finding in recorder.all(Finding) if finding.code == "HR305"]
    apart = layout_in(project.storage, "copies").quarantine / "kept" / "0.jsonl"
    if empty == 1:
        assert (len(readings), apart.is_file(), len(notes)) == (2, True, 1)
    else:
        assert (len(readings), apart.is_file(), len(notes)) == (3, False, 1)
        assert "1 of the 1 rows of source 'kept' that batch 0 counted" in notes[0]


def test_a_batch_whose_progress_has_no_count_is_looked_through(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", BODY, batches=[[{"name": "a", "amount": 1}, {"name": "b", "amount": "many"}]])
    # Spark's progress has no metric of a part of the plan that the optimiser has left out.
    monkeypatch.setattr(source_health, "bad_rows_metric", "not counted: {}".format)
    project = hr.load(root)
    assert hr.run(project, trigger=hr.available_now, spark=spark).exit_code == 0
    assert (layout_in(project.storage, "copies").quarantine / "kept" / "0.jsonl").is_file()


def test_a_file_that_is_gone_is_reported_and_the_run_ends_well(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", BODY, batches=[[{"name": "a", "amount": 1}, {"name": "b", "amount": "many"}]])
    original = Files.rejected_rows

    def removed_after(self: Files, spark: SparkSession, part: SourcePrefix) -> DataFrame | None:
        frame = original(self, spark, part)
        (root / "landing" / "0000.json").unlink(missing_ok=True)
        return frame

    monkeypatch.setattr(Files, "rejected_rows", removed_after)
    recorder = Recorder()
    (outcome,) = hr.run(hr.load(root), trigger=hr.available_now, spark=spark, reporter=recorder).outcomes
    assert (outcome.state, outcome.finding) == ("finished", None)
    assert ("HR303", "warning") in [(finding.code, finding.severity) for finding in recorder.all(Finding)]
