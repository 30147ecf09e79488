"""Make the real checkpoints and progress reports that the plain tests of `checkpoint` and `progress` read.

Run by hand after a change of Spark's formats: `python tests/checkpoint/make_fixtures.py`. Takes about a minute.

named/       one named file source, watermark, windowed count in RocksDB, 27 batches of which Spark keeps the last five
named/kept.json    what each batch of `named` put out; shows against which watermark rows are dropped as late
named/every_batch.json   the offsets and commits of all batches, also of those that Spark has purged since
numbered/    a file source and a rate source without names, in the first format of offsets
grown/       two named sources, of which the second was added at a restart
rocksdb_few.zip, rocksdb_many.zip, rocksdb2_few.zip, rocksdb2_many.zip, hdfs_few.zip, hdfs_many.zip
             checkpoints as they are, with checksums and state: a count over 3 batches, or over 14 with snapshots and
             purged files; in rocksdb2 in the second format of checkpoints, and with files of an attempt that failed
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
PROGRESS = HERE.parent / "progress" / "fixtures"
FILES = 26
SCHEMA = "time TIMESTAMP, kind STRING"


def main() -> None:
    work = Path(tempfile.mkdtemp())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.minBatchesToRetain", "5")
        .config("spark.sql.streaming.fileSource.log.cleanupDelay", "0")
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.streaming.stateStore.maintenanceInterval", "300ms")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.streams.addListener(Heard())
    PROGRESS.mkdir(parents=True, exist_ok=True)
    try:
        numbered(spark, work)
        spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
        spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
        named(spark, work)
        grown(spark, work)
        stateful(spark, work)
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


class Heard(StreamingQueryListener):
    """Keep the report of one batch as a listener gets it: in the words of the JVM, not of Python."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...  # noqa: N802

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if event.progress.name == "counts" and event.progress.batchId in (0, 6):
            (PROGRESS / f"heard_{event.progress.batchId}.json").write_text(neutral(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...  # noqa: N802


def named(spark: SparkSession, work: Path) -> None:
    """In hour b, one row on time; one whose window has closed one batch ago, and one whose window closed before."""
    source, checkpoint = work / "in", work / "named"
    source.mkdir()
    for hour in range(FILES):
        rows = [(hour, "on time")]
        if hour >= 3:
            rows += [(hour - 2, "between"), (hour - 3, "late")]
        drop(source, hour, rows)
    kept: dict[int, list[str]] = {}
    every: dict[str, dict[str, str]] = {"offsets": {}, "commits": {}}

    def copy_logs() -> None:
        for folder, texts in every.items():
            texts.update({file.name: file.read_text() for file in (checkpoint / folder).glob("[0-9]*")})

    def remember(batch: DataFrame, number: int) -> None:
        kept[number] = sorted(row.kind for row in batch.collect())
        copy_logs()

    events = (spark.readStream.name("events").schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))).observe(
        "quality", F.count(F.lit(1)).alias("rows"), F.max("time").alias("newest")
    )
    counts = events.withWatermark("time", "30 minutes").groupBy(F.window("time", "10 minutes"), "kind").count()
    query = (
        counts.writeStream.outputMode("update")
        .queryName("counts")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(remember)
        .start()
    )
    query.awaitTermination()
    progress = query.recentProgress
    save("first_batch", progress[0])
    save("aggregate", progress[5])
    save("no_data", progress[-1])
    copy_logs()
    keep(checkpoint, "named", work)
    (FIXTURES / "named" / "kept.json").write_text(json.dumps(kept, indent=0) + "\n")
    (FIXTURES / "named" / "every_batch.json").write_text(json.dumps(every, indent=0) + "\n")


def numbered(spark: SparkSession, work: Path) -> None:
    source, checkpoint = work / "plain", work / "numbered"
    source.mkdir()
    for hour in range(3):
        drop(source, hour, [(hour, "x")])
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
    rate = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    query = (
        files.unionByName(rate.select(F.col("timestamp").alias("time"), F.lit("rate").alias("kind")))
        .writeStream.format("noop")
        .queryName("both")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )
    wait_for(query, batch=4)
    save("rate", query.recentProgress[-1])
    query.stop()
    keep(checkpoint, "numbered", work)


def grown(spark: SparkSession, work: Path) -> None:
    checkpoint = work / "grown"

    def lines(name: str, files: int) -> DataFrame:
        folder = work / name
        folder.mkdir(exist_ok=True)
        for number in range(files):
            drop(folder, number, [(number, name)])
        return spark.readStream.name(name).schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))

    for frame in (lines("clicks", 2), lines("clicks", 4).union(lines("views", 1))):
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    keep(checkpoint, "grown", work)


def stateful(spark: SparkSession, work: Path) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "3")
    spark.conf.set("spark.sql.streaming.fileSource.log.compactInterval", "4")
    package = "org.apache.spark.sql.execution.streaming.state"
    rocksdb, hdfs = "RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"
    for store, provider, version in (("rocksdb", rocksdb, 1), ("rocksdb2", rocksdb, 2), ("hdfs", hdfs, 1)):
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", f"{package}.{provider}")
        spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", str(version))
        for size, batches in (("few", 3), ("many", 14)):
            spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "3" if size == "many" else "100")
            source, checkpoint = work / f"in_{store}_{size}", work / f"{store}_{size}"
            source.mkdir()
            for hour in range(batches):
                drop(source, hour, [(hour, kind) for kind in "abcdefg"])
            events = spark.readStream.name("events").schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
            query = (
                events.groupBy("kind")
                .count()
                .writeStream.format("noop")
                .outputMode("update")
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            time.sleep(1)
            for file in checkpoint.glob("state/0/0/[23]_*.changelog"):
                file.with_name(f"{file.name[0]}_failed-attempt.changelog").write_bytes(file.read_bytes()[:-9])
            shutil.make_archive(str(FIXTURES / checkpoint.name), "zip", checkpoint)


def drop(folder: Path, number: int, rows: list[tuple[int, str]]) -> None:
    """Write one JSON file with a modification time of its own, so that Spark's order is ours."""
    file = folder / f"{number:03d}.json"
    lines = [
        json.dumps({"time": f"2024-01-{1 + hour // 24:02d} {hour % 24:02d}:00:00", "kind": kind}) for hour, kind in rows
    ]
    file.write_text("\n".join(lines) + "\n")
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def wait_for(query: StreamingQuery, *, batch: int) -> None:
    for _ in range(600):
        error = query.exception()
        if error is not None:
            raise error
        last = query.lastProgress
        if last is not None and last.batchId >= batch:
            return
        time.sleep(0.1)
    raise TimeoutError(f"batch {batch} did not come")


def save(name: str, progress: StreamingQueryProgress) -> None:
    (PROGRESS / f"{name}.json").write_text(neutral(progress.json))


def neutral(report: str) -> str:
    """The report with paths that mean nothing on this machine."""
    return re.sub(r"file:[^\"\]]*/tmp\w+/", "file:/data/", report) + "\n"


def keep(checkpoint: Path, name: str, work: Path) -> None:
    """Copy a checkpoint without checksums and state, with paths that mean nothing on this machine."""
    target = FIXTURES / name
    shutil.rmtree(target, ignore_errors=True)
    for file in sorted(checkpoint.rglob("*")):
        inside = file.relative_to(checkpoint)
        state = inside.parts[0] == "state" and inside.parts[2:] != ("_metadata", "metadata")
        if file.is_dir() or file.name.startswith(".") or state:
            continue
        place = target / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(file.read_text().replace(str(work), "/data"))


if __name__ == "__main__":
    main()
