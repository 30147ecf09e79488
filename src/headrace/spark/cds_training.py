"""The training run of the CDS archive: it does once, on a few rows, what projects do all day."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.spark.jvm import hadoop_files
from headrace.spark.jvm.settings import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_SCHEMA = "phone_id STRING, time TIMESTAMP, action STRING, n BIGINT"
_FORMATS = ("json", "csv", "parquet")
_MOST_SECONDS = 120


def train(archive: Path) -> None:
    """Start a JVM that writes `archive` at its exit, load what streams and their checks load, and wait for the exit."""
    from pyspark import SparkContext

    home = Path(tempfile.mkdtemp(prefix="training-"))
    spark = _session(archive, home)
    _write_inputs(spark, home)
    for lesson in (_windows, _formats_and_sinks, _joins, _rate, _answers, _refusals, _forms):
        # A lesson that this version of Spark does not know costs the next start a little, not the archive.
        try:
            lesson(spark, home)
        except Exception as error:
            print(f"{lesson.__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
    gateway: Any = SparkContext._gateway
    jvm = gateway.proc
    spark.stop()
    gateway.shutdown()
    jvm.stdin.close()
    jvm.wait()


def _session(archive: Path, home: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().master("local[2]").appName("CDS archive")
    options = (
        f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off "
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    )
    for key, value in {
        **{setting.key: setting.value for setting in settings(master="local[2]", purpose="stream")},
        **hadoop_files.settings({}),
        "spark.driver.extraJavaOptions": options,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _write_inputs(spark: SparkSession, home: Path) -> None:
    for name in _FORMATS:
        (home / name).mkdir()
    for hour in range(3):
        rows = [
            {"phone_id": f"p{i}", "time": f"2024-01-01T0{hour}:{i:02d}:00", "action": "abc"[i % 3], "n": i}
            for i in range(40)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (home / "json" / f"{hour}.json").write_text(text, encoding="utf-8")
        lines = "".join(",".join(map(str, row.values())) + "\n" for row in rows)
        (home / "csv" / f"{hour}.csv").write_text(lines, encoding="utf-8")
    batch = spark.read.schema(_SCHEMA).json(str(home / "json"))
    batch.repartition(2).write.mode("overwrite").parquet(str(home / "parquet"))


def _source(spark: SparkSession, home: Path, form: str, name: str) -> DataFrame:
    reader = spark.readStream.name(name).schema(_SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.format(form).load(str(home / form)).withWatermark("time", "10 minutes")


def _to_arrow(frame: DataFrame, batch: int) -> None:
    frame.sparkSession.sparkContext.setLocalProperty("spark.job.description", f"batch {batch}")
    frame.toArrow()


def _drain(
    frame: DataFrame,
    mode: str,
    place: Path,
    sink: Callable[[DataStreamWriter], DataStreamWriter] = lambda to: to.foreachBatch(_to_arrow),
) -> None:
    writer = frame.writeStream.queryName(place.name).outputMode(mode).option("checkpointLocation", str(place))
    query = sink(writer.trigger(availableNow=True)).start()
    query.awaitTermination(_MOST_SECONDS)
    query.recentProgress  # noqa: B018
    query.stop()


def _windows(spark: SparkSession, home: Path) -> None:
    """Counts per window of JSON events, listened to and observed, in update mode."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            event.progress.json  # noqa: B018

        onQueryIdle = onQueryTerminated = onQueryStarted  # noqa: N815

    spark.streams.addListener(Listener())
    events = _source(spark, home, "json", "events").observe("seen", F.count(F.lit(1)).alias("rows"))
    counts = events.groupBy("action", F.window("time", "1 hour")).count()
    _drain(counts.select("action", F.col("window.start").alias("hour"), "count"), "update", home / "windows")


def _formats_and_sinks(spark: SparkSession, home: Path) -> None:
    """CSV into Parquet in append mode, Parquet into memory in complete mode."""
    from pyspark.sql import functions as F

    halves = _source(spark, home, "csv", "lines").groupBy(F.window("time", "30 minutes"))
    sums = halves.agg(F.sum("n").alias("s"), F.max("n").alias("m"), F.approx_count_distinct("phone_id").alias("d"))
    _drain(sums, "append", home / "append", lambda to: to.format("parquet").option("path", str(home / "out")))
    averages = _source(spark, home, "parquet", "parts").groupBy("action").agg(F.avg("n"), F.min("time"))
    _drain(averages, "complete", home / "complete", lambda to: to.format("memory"))


def _joins(spark: SparkSession, home: Path) -> None:
    """Two streams joined within a time bound, one of them without its duplicates."""
    from pyspark.sql import functions as F

    left = _source(spark, home, "json", "left").dropDuplicatesWithinWatermark(["phone_id", "time"])
    right = _source(spark, home, "csv", "right").select(F.col("phone_id").alias("k"), F.col("time").alias("t"))
    joined = left.join(right, F.expr("phone_id = k AND t BETWEEN time - INTERVAL 5 MINUTES AND time"))
    _drain(joined, "append", home / "joined")


def _rate(spark: SparkSession, home: Path) -> None:
    """A stream without an end, stopped from outside."""
    from pyspark.sql import functions as F

    rows = spark.readStream.name("rate").format("rate-micro-batch").option("rowsPerBatch", 100).load()
    counts = rows.groupBy((F.col("value") % 10).alias("key")).count()
    place = str(home / "rate")
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", place)
    query = writer.foreachBatch(_to_arrow).start()
    end = time.monotonic() + _MOST_SECONDS
    while not (query.lastProgress and query.lastProgress.batchId > 2) and time.monotonic() < end:
        time.sleep(0.1)
    query.stop()


def _answers(spark: SparkSession, home: Path) -> None:
    """The batch answers that verify asks for."""
    from pyspark.sql import functions as F

    events = spark.read.schema(_SCHEMA).json(str(home / "json"))
    events.createOrReplaceTempView("events")
    counts = spark.sql("SELECT action, window(time, '1 hour').start AS hour, count(*) AS c FROM events GROUP BY 1, 2")
    again = spark.createDataFrame(counts.toArrow())
    counts.exceptAll(again).limit(5).collect()
    counts.join(again, ["action", "hour"], "full_outer").where("false").collect()
    counts.join(F.broadcast(again), "action").orderBy("hour").count()
    counts.toPandas()
    spark.createDataFrame([("a", 1)], "a STRING, n INT").collect()
    spark.range(3).count()


def _refusals(spark: SparkSession, home: Path) -> None:
    """A query that Spark refuses, and its checker asked before any start."""
    bad = _source(spark, home, "json", "bad").orderBy("n")
    try:
        bad.writeStream.option("checkpointLocation", str(home / "bad")).foreachBatch(_to_arrow).start()
    except Exception as error:
        str(error)


def _forms(spark: SparkSession, home: Path) -> None:
    """The plan of a query as data, by which each start is compared with what ran."""
    from pyspark.sql import functions as F

    from headrace.spark.plans.analysed import analysed_plan
    from headrace.spark.plans.plan_json import plan_tree

    events = _source(spark, home, "json", "compared")
    counts = events.where("n > 0 AND try_cast(action AS INT) IS NULL").groupBy("action", F.window("time", "1 hour"))
    plan_tree(spark, analysed_plan(counts.agg(F.count("*").alias("c"), F.sum("n").alias("s"))))


if __name__ == "__main__":
    train(Path(sys.argv[1]))
