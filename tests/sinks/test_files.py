"""The file sink takes every format, partitions, keeps types, and refuses a checkpoint that would lose batches."""

from __future__ import annotations

import shutil
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import SinkRun
from headrace.errors import CheckpointFault, SinkFault
from headrace.sinks.files import FileSink
from headrace.testing.conformance import NAME, forget_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = [
    (1, 'a,"b"', datetime(2024, 1, 1, 0, 0, 0, 123456), date(2024, 1, 1)),
    (2, "é", None, date(2024, 1, 2)),
]
SCHEMA = "id INT, name STRING, at TIMESTAMP, day DATE"


def write(spark: SparkSession, tmp_path: Path, sink: FileSink, columns: list[str]) -> tuple[SinkRun, DataFrame]:
    """Run a stream of ROWS into the sink; a second start after a crash before the commit is part of it."""
    run = SinkRun(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.mode("append").parquet(str(tmp_path / "input"))
    frame = spark.readStream.name(NAME).schema(SCHEMA).parquet(str(tmp_path / "input")).select(*columns)
    for start in range(2):
        sink.prepare(frame, run)
        writer = frame.writeStream.option("checkpointLocation", str(run.checkpoint)).trigger(availableNow=True)
        sink.write(writer, run).start().awaitTermination()
        if start == 0:
            forget_commit(run.checkpoint)
    return run, spark.createDataFrame(ROWS, SCHEMA).select(*columns)


@pytest.mark.capability("SINK-FILE-01")
@pytest.mark.parametrize(
    ("format_", "columns"),
    [
        ("text", ["name"]),
        ("csv", ["id", "name", "at", "day"]),
        ("json", ["id", "name", "at", "day"]),
        ("parquet", ["id", "name", "at", "day"]),
        ("orc", ["id", "name", "at", "day"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_format_comes_back_with_its_types_once(
    spark: SparkSession, tmp_path: Path, format_: Any, columns: list[str]
) -> None:
    partition_by = ["day"] if "day" in columns else []
    sink = FileSink(path=str(tmp_path / "output"), format=format_, partition_by=partition_by, retention="365d")
    assert list(sink.problems("append")) == []
    run, written = write(spark, tmp_path, sink, columns)
    snapshot = sink.snapshot(spark, run)
    assert snapshot.batch == 0
    assert snapshot.rows.dtypes == written.dtypes
    assert sorted(snapshot.rows.collect(), key=repr) == sorted(written.collect(), key=repr)
    directories = {place.name for place in (tmp_path / "output").glob("day=*")}
    assert directories == ({"day=2024-01-01", "day=2024-01-02"} if partition_by else set())


@pytest.mark.capability("SINK-FILE-01")
def test_spark_forgets_files_older_than_the_retention(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "2")
    sink = FileSink(path=str(tmp_path / "output"), format="json", retention="1ms")
    run = SinkRun(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    (tmp_path / "input").mkdir()
    frame = spark.readStream.name(NAME).schema("a INT").json(str(tmp_path / "input"))
    try:
        for number in range(2):
            (tmp_path / "input" / f"{number}.json").write_text(f'{{"a": {number}}}\n')
            sink.prepare(frame, run)
            writer = frame.writeStream.option("checkpointLocation", str(run.checkpoint)).trigger(availableNow=True)
            sink.write(writer, run).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")
    assert (0,) not in [tuple(row) for row in sink.snapshot(spark, run).rows.collect()]


def test_a_new_checkpoint_over_old_files_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(path=str(tmp_path / "output"))
    run, written = write(spark, tmp_path, sink, ["id"])
    shutil.rmtree(run.checkpoint)
    with pytest.raises(CheckpointFault, match="go up to batch 0, the checkpoint of query 'q' only to none"):
        sink.prepare(written, run)


def test_what_cannot_be_is_told_before_start(spark: SparkSession, tmp_path: Path) -> None:
    assert [told.code for told in FileSink(path="/x", format="yaml").problems("update")] == ["HR401", "HR403"]  # type: ignore[arg-type]
    run = SinkRun(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    sink = FileSink(path=str(tmp_path / "output"), partition_by=["dya"])
    with pytest.raises(SinkFault, match=r"partition_by names dya.*(?s:.*)did you mean 'day'"):
        sink.prepare(spark.createDataFrame(ROWS, SCHEMA), run)
    with pytest.raises(SinkFault, match="nothing has been written"):
        sink.snapshot(spark, run)
