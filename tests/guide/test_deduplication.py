"""Duplicates dropped the guide's three ways, and what each of them remembers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run, verify

from .scenes import events, land, play, project, query, refusal_of, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "guid STRING, time TIMESTAMP"
TABLE = "SELECT guid, substr(time, 12, 8) FROM q ORDER BY 1, 2"


def clicks(watermark: str = "") -> str:
    return source("clicks", SCHEMA, watermark=f'("time", "{watermark}")' if watermark else "")


@pytest.mark.capability("DEDUP-01")
def test_without_a_watermark_every_key_is_kept_and_that_is_reported(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path, clicks(), query('clicks.dropDuplicates(["guid"])', inputs="clicks"))
    land(root, "clicks", events("guid", ("12:00", "g1"), ("12:00", "g2"), ("12:00", "g1")))
    land(root, "clicks", events("guid", ("23:00", "g1"), ("23:00", "g3")))
    (warning,) = check(load(root), spark=spark).findings
    assert (warning.code, warning.severity) == ("HR240", "warning")
    assert "its deduplication by guid indefinitely" in warning.what
    played = play(root, spark, TABLE)
    first = [("g1", "12:00:00"), ("g2", "12:00:00")]
    assert [trigger.table for trigger in played.triggers] == [first, [*first, ("g3", "23:00:00")]]
    assert played.state_rows == 3


@pytest.mark.capability("DEDUP-02")
def test_with_id_and_event_time_the_watermark_forgets_keys(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path, clicks("10 seconds"), query('clicks.dropDuplicates(["guid", "time"])', inputs="clicks"))
    land(root, "clicks", events("guid", ("12:00:00", "g1"), ("12:00:00", "g1"), ("12:00:05", "g2")))
    land(root, "clicks", events("guid", ("12:00:00", "g1"), ("12:00:03", "g1"), ("12:01:00", "g3")))
    assert check(load(root), spark=spark).findings == ()
    played = play(root, spark, TABLE)
    kept = [("g1", "12:00:00"), ("g1", "12:00:03"), ("g2", "12:00:05"), ("g3", "12:01:00")]
    assert [trigger.table for trigger in played.triggers][:2] == [[kept[0], kept[2]], kept]
    assert played.state_rows == 1
    land(root, "clicks", events("guid", ("12:00:00", "g1"), ("12:00:55", "g4"), ("12:01:00", "g3")))
    played = play(root, spark, TABLE)
    assert played.triggers[-1].table == [*kept, ("g4", "12:00:55")]
    assert played.state_rows == 2
    verdict = verify(load(root), "q", spark=spark)
    assert (verdict.state, verdict.rows_late) == ("late", 1)


@pytest.mark.capability("DEDUP-03")
def test_within_the_watermark_one_of_a_kind_is_kept_whatever_its_time(tmp_path: Path, spark: SparkSession) -> None:
    """With a delay of one hour, duplicates up to one hour apart are found; later ones are new again."""
    root = project(tmp_path, clicks("1 hour"), query('clicks.dropDuplicatesWithinWatermark(["guid"])', inputs="clicks"))
    land(root, "clicks", events("guid", ("12:00", "g1")), events("guid", ("12:10", "g1"), ("12:10", "g2")))
    land(root, "clicks", events("guid", ("12:59:59", "g1"), ("15:00", "g3")))
    assert check(load(root), spark=spark).findings == ()
    played = play(root, spark, TABLE)
    kept = [("g1", "12:00:00"), ("g2", "12:10:00"), ("g3", "15:00:00")]
    assert [trigger.table for trigger in played.triggers][:3] == [kept[:1], kept[:2], kept]
    assert played.state_rows == 1
    land(root, "clicks", events("guid", ("15:10", "g1"), ("15:30", "g3")))
    assert play(root, spark, TABLE).triggers[-1].table == [kept[0], ("g1", "15:10:00"), *kept[1:]]


@pytest.mark.capability("DEDUP-03")
def test_within_a_watermark_that_is_not_there_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path, clicks(), query('clicks.dropDuplicatesWithinWatermark(["guid"])', inputs="clicks"))
    land(root, "clicks", [])
    error = refusal_of(root, spark)
    assert (error.code, "dropDuplicatesWithinWatermark" in error.what) == ("HR221", True)
    assert "give the source a watermark" in error.fix


def test_a_key_whose_collation_takes_different_texts_for_equal_is_named(tmp_path: Path, spark: SparkSession) -> None:
    form = "guid STRUCT<number: INT, of: STRING COLLATE UTF8_LCASE>, time TIMESTAMP"
    read, cast = source("clicks", form), "clicks.selectExpr('CAST(guid.of AS STRING) AS of').dropDuplicates(['of'])"
    root = project(tmp_path, read, query('clicks.dropDuplicates(["guid"]).select("guid.of")', inputs="clicks"))
    land(root, "clicks", [{"guid": {"number": 1, "of": "a"}}, {"guid": {"number": 1, "of": "A"}}])
    (outcome,) = run(load(root), spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, "by the column 'of', whose collation" in outcome.finding.what) == ("HR220", True)
    assert "cast the column to STRING" in outcome.finding.fix
    root = project(tmp_path / "cast", read, query(cast, inputs="clicks"))
    land(root, "clicks", [{"guid": {"number": 1, "of": "a"}}, {"guid": {"number": 1, "of": "A"}}])
    assert play(root, spark, "SELECT of FROM q ORDER BY 1").triggers[-1].table == [("A",), ("a",)]
