"""Messages from a topic to another, upper-cased and filtered, as an expert writes it, with Spark tuned by hand.

python model_kafka.py SERVERS FROM TO CHECKPOINT TRIGGER JARS; TRIGGER is available-now, default, continuous or
real-time. All but the first run until they are asked to stop.
"""

import json
import signal
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

servers, source, sink, checkpoint, trigger, jars = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.sql.shuffle.partitions", "2")
    .config(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    )
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

reader = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
)
if trigger in ("available-now", "default"):
    reader = reader.option("maxOffsetsPerTrigger", 1_000_000)
value = F.col("value").cast("string")
writer = (
    reader.load()
    .where(~value.startswith("skip"))
    .select(F.upper(value).alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", sink)
    .option("checkpointLocation", checkpoint)
)
TRIGGERS: dict[str, dict[str, Any]] = {
    "available-now": {"availableNow": True},
    "default": {},
    "continuous": {"continuous": "1 second"},
    "real-time": {"realTime": "30 seconds"},
}
if trigger != "default":
    writer = writer.trigger(**TRIGGERS[trigger])
query = writer.outputMode("update" if trigger == "real-time" else "append").start()
if trigger == "available-now":
    query.awaitTermination()
else:
    signal.signal(signal.SIGTERM, lambda *_: query.stop())
    while query.isActive:
        query.awaitTermination(1)
for progress in query.recentProgress:
    times = {"at": progress["timestamp"], "duration_ms": progress["durationMs"].get("triggerExecution")}
    print(json.dumps({"batch": progress["batchId"], "rows": progress["numInputRows"], **times}))
spark.stop()
