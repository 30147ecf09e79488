"""A count in two state partitions on a cluster, as a process: which executor has which, after each batch."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.cluster import connection
from headrace.spark.jvm.session_conf import executors
from headrace.spark.jvm.settings import settings


def main(master: str, home: Path) -> None:
    """One small file, which one task reads, then more; prints the executor of each partition, a line a batch."""
    builder = SparkSession.Builder().master(master)
    own = {setting.key: setting.value for setting in settings(master=master, purpose="stream")}
    own |= {"spark.sql.shuffle.partitions": "2", "spark.executor.memory": "512m", "spark.locality.wait": "60s"}
    for key, value in {**own, **connection.settings(master, {})}.items():
        builder = builder.config(key, value)
    connection.use_this_python(master)
    spark = builder.getOrCreate()
    while executors(spark) < 2:
        time.sleep(0.1)
    landing = home / "landing"
    landing.mkdir()

    @F.udf("int")
    def process(_: int) -> int:
        return os.getppid()  # Of the daemon, of which each executor has its own.

    def say(frame: DataFrame, _: int) -> None:
        rows = frame.select(F.spark_partition_id(), process("key")).distinct().collect()
        print(json.dumps(dict(rows)), flush=True)

    stream = spark.readStream.schema("value BIGINT").name("numbers").json(str(landing))
    counts = stream.groupBy((F.col("value") % 100).alias("key")).count()
    query = counts.writeStream.outputMode("update").foreachBatch(say)
    running = query.option("checkpointLocation", str(home / "checkpoint")).start()
    for number in range(3):
        for file in range(1 + 3 * bool(number)):
            draft = home / "draft"
            draft.write_text("\n".join(json.dumps({"value": value}) for value in range(200)))
            draft.rename(landing / f"{number}-{file}.json")
        running.processAllAvailable()
    running.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
