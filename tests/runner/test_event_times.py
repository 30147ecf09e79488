"""Rows without an event time are counted, and the row that moved a watermark past the clock is named."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from headrace.api import load, run, status, verify
from headrace.cli import main
from headrace.contract import BatchRecord
from headrace.errors import Finding
from headrace.generations.log import history_file
from headrace.history import History
from headrace.history.lag import SourceLags
from headrace.runner import query_run, supervision
from headrace.ui.standing import standings
from tests.rounds import rounds

from .projects import land, write_project
from .test_counts import Deaf, uncommit
from .test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEPT = """
timed = hr.source.files("landing", format="json", max_files_per_trigger=1, schema="time TIMESTAMP, name STRING",
                        watermark=("time", "10 minutes"))

@hr.query(sink=hr.sink.sqlite("out.db", table="kept"), mode="append", trigger=hr.available_now)
def kept(timed):
    return timed.groupBy(F.window("time", "10 minutes"), "name").count().select("window.start", "name", "count")
"""
BOTH = """
left = hr.source.files("landing", format="json", schema="time TIMESTAMP, name STRING", watermark=("time", "1 hour"))
right = hr.source.files("landing", format="json", schema="time TIMESTAMP, name STRING", watermark=("time", "1 hour"))

@hr.query(sink=hr.sink.memory(), mode="append", trigger=hr.available_now)
def both(left, right):
    return left.union(right)
"""
JOIN = 'left.join(right.selectExpr("time AS at", "name AS other"), F.expr("time = at"))'
JOINED = BOTH.replace("left.union(right)", JOIN)
Times = Sequence[str | None]


def rows(*times: str | None) -> list[dict[str, Any]]:
    """Rows of these times of 2024-01-01, or of a day of their own; None: without one."""
    whole = [f"2024-01-01 {time}:00" if time is not None and len(time) == 5 else time for time in times]
    return [{"name": "a"} if time is None else {"time": time, "name": "a"} for time in whole]


def codes(recorder: Recorder) -> list[str]:
    return [finding.code for finding in recorder.all(Finding) if finding.code in ("HR685", "HR686")]


def counts(record: BatchRecord) -> Mapping[str, tuple[int | None, int | None]]:
    return {source.name: (source.null_times, source.null_times_total) for source in record.sources}


def test_rows_without_a_time_are_counted_by_batch_and_in_all_and_reported_once(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", KEPT, batches=[rows("12:00", None, None), rows("12:30"), rows(None, "13:30")])
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    batches = recorder.all(BatchRecord)
    assert [counts(batch)["timed"] for batch in batches][:3] == [(2, 2), (0, 2), (1, 3)]
    # Spark takes NULL for the beginning of 1970.
    assert {batch.event_min.year for batch in batches if batch.event_min} == {2024}
    assert codes(recorder) == ["HR685"]
    land(root, 3, rows("14:30"))
    land(root, 4, rows(None))
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert [counts(record)["timed"] for record in recorder.all(BatchRecord)][:2] == [(0, 3), (1, 4)]
    assert codes(recorder) == ["HR685"]
    (now,) = status(load(root))
    assert now.null_times == {"timed": 4}
    assert main(["status", "-C", str(root)]) == 0
    assert "8 (4 without event time)" in " ".join(capsys.readouterr().out.split())
    assert main(["status", "-C", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"][0]["null_times"] == {"timed": 4}


def test_each_of_two_sources_has_its_own_count(tmp_path: Path, spark: SparkSession) -> None:
    recorder = Recorder()
    root = write_project(tmp_path / "p", BOTH, batches=[rows("12:00", None, None)])
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert counts(recorder.all(BatchRecord)[0]) == {"left": (2, 2), "right": (2, 2)}
    (finding,) = (finding for finding in recorder.all(Finding) if finding.code == "HR685")
    assert "2 of 'left', 2 of 'right'" in finding.what


def test_a_join_of_two_streams_has_no_count_which_would_change_its_state(tmp_path: Path, spark: SparkSession) -> None:
    recorder = Recorder()
    root = write_project(tmp_path / "p", JOINED, batches=[rows("12:00", None)])
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert counts(recorder.all(BatchRecord)[0]) == {"left": (None, None), "right": (None, None)}


@pytest.mark.parametrize("damage", rounds(["made again", "not reported"]))
def test_the_count_is_exact_where_spark_has_none_or_another(
    damage: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large batch is computed twice, one that the sink has is computed by halves, and of one nothing is reported."""
    root = write_project(tmp_path / "p", KEPT, batches=[rows("12:00", None), rows(*["12:30"] * 4_000, *[None] * 3_000)])
    if damage == "not reported":
        monkeypatch.setattr(query_run, "LAST_EVENTS_SECONDS", 0.0)
        monkeypatch.setattr(supervision, "Listener", Deaf)
    assert run(load(root), spark=spark).exit_code == 0
    assert status(load(root))[0].null_times == {"timed": 3_001}
    if damage == "made again":
        uncommit(root, 1)
        assert run(load(root), spark=spark).exit_code == 0
        assert status(load(root))[0].null_times == {"timed": 3_001}


def test_the_row_that_moved_the_watermark_past_the_clock_is_named_until_it_is_behind_again(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = [rows("12:00"), rows("12:10", "2126-01-01 00:00:00"), rows("12:20"), rows("2130-01-01 00:00:00")]
    root = write_project(tmp_path / "p", KEPT, batches=batches)
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert codes(recorder) == ["HR686"]
    (finding,) = (finding for finding in recorder.all(Finding) if finding.code == "HR686")
    assert "source 'timed' in batch 1 (" in finding.what
    assert "landing/0001.json), of 2126-01-01 00:00:00 UTC" in finding.what
    assert "headrace rewind kept --to-batch 0" in finding.fix
    assert main(["status", "-C", str(root)]) == 0
    assert "0001.json), of 2126" in " ".join(capsys.readouterr().out.split())
    assert main(["status", "-C", str(root), "--json"]) == 0
    (plain,) = json.loads(capsys.readouterr().out)["queries"]
    assert [finding["code"] for finding in plain["wrong_times"]] == ["HR686"]
    # A later run, in another process, still names the first row and not the one of 2130.
    land(root, 4, rows("12:40"))
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    (finding,) = (finding for finding in recorder.all(Finding) if finding.code == "HR686")
    assert "in batch 1 (" in finding.what
    project = load(root)
    with History.open(history_file(project.local_storage)) as history:
        (leap,) = {record.leap.batch for record in history.recent("kept") if record.leap}
        standing = standings(project, history, SourceLags(project))["kept"]
    assert (leap, [finding["code"] for finding in standing["wrong_times"]]) == (1, ["HR686"])


@pytest.mark.parametrize(
    "times", rounds([["1500-01-01 00:00:00", "0001-01-01 00:00:00", "12:00"], ["12:00", "12:30", "13:00"]])
)
def test_times_of_the_past_are_no_warning(times: Times, tmp_path: Path, spark: SparkSession) -> None:
    recorder = Recorder()
    root = write_project(tmp_path / "p", KEPT, batches=[rows(time) for time in times])
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert codes(recorder) == []


FILTERED = KEPT.replace('watermark=("time", "10 minutes")', "").replace(
    "timed.groupBy", "timed.where(\"time < '2100-01-01'\").withWatermark('time', '10 minutes').groupBy"
)


def test_a_watermark_behind_a_filter_is_not_moved_by_what_the_filter_takes_out(
    tmp_path: Path, spark: SparkSession
) -> None:
    batches = [rows("12:00"), rows("12:10", "2126-01-01 00:00:00", None), rows("12:20"), rows("13:30")]
    recorder = Recorder()
    root = write_project(tmp_path / "p", FILTERED, batches=batches)
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert codes(recorder) == []
    assert {record.watermark.year for record in recorder.all(BatchRecord) if record.watermark} == {2024}
    assert status(load(root))[0].null_times == {"timed": 0}


PARQUET = KEPT.replace('"landing", format="json"', '"far", format="parquet"')


def test_a_time_beyond_the_years_of_python_ends_nothing(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", PARQUET)
    (root / "far").mkdir()
    for number, seconds in enumerate([1_704_110_400, 327_403_382_400, 1_704_112_200]):
        times = pa.array([seconds * 1_000_000], pa.timestamp("us", tz="UTC"))
        file = root / "far" / f"{number}.parquet"
        parquet.write_table(pa.table({"time": times, "name": ["a"]}), file)
        os.utime(file, (1_700_000_000 + number,) * 2)
    recorder = Recorder()
    assert run(load(root), spark=spark, reporter=recorder).exit_code == 0
    assert [record.rows for record in recorder.all(BatchRecord)][:3] == [1, 1, 1]
    assert codes(recorder) == ["HR686"]
    assert main(["status", "-C", str(root)]) == 0
    assert "at 9999-12-31 23:59:59 UTC, moved by a row of source 'timed' in batch 1" in " ".join(
        capsys.readouterr().out.split()
    )
    assert verify(load(root), "kept", spark=spark).exit_code == 0
