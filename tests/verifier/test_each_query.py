"""Several queries verified at once: each gets its own verdict, and the session stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.checkpoint.archive import Archive
from headrace.cli import main
from tests.registered import layout_in
from tests.verifier.kit import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
import pathlib

from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import headrace as hr

HERE = pathlib.Path(__file__).parent
events = hr.source.files(
    "landing", format="json", schema="time TIMESTAMP, who STRING, value DOUBLE", watermark=("time", "10 minutes"),
    max_files_per_trigger=1,
)


@hr.query(sink=hr.sink.files("damaged", format="parquet"), trigger=hr.available_now)
def a_damaged_sink(events):
    return events.select("who")


@hr.query(sink=hr.sink.sqlite("result.db", table="broken"), trigger=hr.available_now)
def b_broken_function(events):
    if (HERE / "broken").exists():
        events = events.withColumn("who", F.raise_error(F.lit("broken on purpose")).cast("string"))
    return events.select("who")


@hr.query(sink=hr.sink.sqlite("result.db", table="pairs"), trigger=hr.available_now)
def c_source_twice(events):
    left = events.select("who", "time", "value")
    right = events.select(F.col("who").alias("whom"), F.col("time").alias("at"), F.col("value").alias("other"))
    near = F.expr("who = whom AND at > time AND at <= time + INTERVAL 5 MINUTES")
    return left.join(right, near).select("who", "time", "at", "value", "other")


@hr.query(sink=hr.sink.sqlite("result.db", table="sound", key=["who"]), mode="update", trigger=hr.available_now)
def d_sound(events):
    return events.groupBy("who").agg(F.sum("value").alias("total"))
"""
BATCHES = [
    [("12:00", "a", 1.0), ("12:01", "b", 2.0)],
    [("12:03", "a", 3.0), ("12:04", "b", 4.0), ("12:30", "a", 5.0)],
]
MORE = [[("12:31", "a", 6.0), ("12:02", "a", 7.0)], [("12:33", "b", 8.0), ("12:34", "a", 9.0)]]


def pairs(rows: list[tuple[str, str, float]]) -> set[tuple[float, float]]:
    """Which values stand together: those of one person within five minutes, the later one second."""

    def minutes(clock: str) -> int:
        return int(clock[:2]) * 60 + int(clock[3:])

    return {
        (mine[2], other[2])
        for mine in rows
        for other in rows
        if mine[1] == other[1] and 0 < minutes(other[0]) - minutes(mine[0]) <= 5
    }


@pytest.mark.spark
def test_each_query_gets_its_own_verdict_whatever_the_others_do(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "headrace.yml").write_text("name: several\n")
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    write(tmp_path / "landing", BATCHES)
    assert [finding.code for finding in hr.check(hr.load(tmp_path), spark=spark).errors] == []
    assert hr.run(hr.load(tmp_path), spark=spark).exit_code == 0
    write(tmp_path / "landing", MORE)
    project = hr.load(tmp_path)
    assert hr.run(project, spark=spark).exit_code == 0

    sources = layout_in(tmp_path / ".headrace", "c_source_twice").home / "checkpoint/sources"
    assert sorted(path.name for path in sources.iterdir()) == ["events", "events__2"]
    for file in (tmp_path / "damaged").glob("*.parquet"):
        file.write_bytes(b"PAR1 nothing of use PAR1")
    (tmp_path / "broken").touch()
    settings, views = spark.sparkContext.getConf().getAll(), spark.sql("SHOW TABLES").collect()
    before = {key: spark.conf.get(key, None) for key, _ in settings} | dict(spark.conf.getAll)

    active = spark.getActiveSession()
    assert main(["verify", "-C", str(tmp_path), "--json"]) == 1
    verdicts = {line["query"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    states = {
        name: (verdict["state"], [finding["code"] for finding in verdict["findings"]])
        for name, verdict in verdicts.items()
    }
    assert states == {
        "a_damaged_sink": ("undecided", ["HR714"]),
        "b_broken_function": ("undecided", ["HR713"]),
        # A row is late in both places, and counts in each.
        "c_source_twice": ("late", []),
        "d_sound": ("equal", []),
    }
    assert "broken on purpose" in verdicts["b_broken_function"]["sentence"]
    twice = verdicts["c_source_twice"]
    in_time = [row for batch in (*BATCHES, *MORE) for row in batch if row != ("12:02", "a", 7.0)]
    assert twice["rows_actual"] == len(pairs(in_time)) > 2
    assert (twice["rows_read"], twice["rows_late"]) == (18, 2)
    assert hr.late(project, "c_source_twice", spark=spark).count == 2

    standing = {status.query: status for status in hr.status(project)}
    assert {name: status.verdict and status.verdict["state"] for name, status in standing.items()} == {
        name: verdict["state"] for name, verdict in verdicts.items()
    }
    assert standing["c_source_twice"].rows_total == 2 * standing["d_sound"].rows_total == 18
    layout = layout_in(project.storage, "c_source_twice")
    kept = [entry.offsets for entry in Archive(layout.archive).entries().values()]
    assert len(kept) >= len([*BATCHES, *MORE])
    assert all(sorted(names) == ["events", "events__2"] and names["events"] == names["events__2"] for names in kept)
    assert hr.verify(project, "d_sound", spark=spark).state == "equal"
    after = {key: spark.conf.get(key, None) for key, _ in settings} | dict(spark.conf.getAll)
    assert (after, spark.sql("SHOW TABLES").collect()) == (before, views)
    assert spark.getActiveSession() is active
