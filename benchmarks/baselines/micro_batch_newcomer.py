"""Count per key into SQLite, as a newcomer writes it: Spark's defaults and a plain foreachBatch.

python micro_batch_newcomer.py DATABASE CHECKPOINT BATCHES
"""

import json
import sqlite3
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

database, checkpoint, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = SparkSession.builder.master("local[2]").getOrCreate()


def upsert(frame: DataFrame, batch: int) -> None:
    rows = [(row["key"], row["count"]) for row in frame.collect()]
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE IF NOT EXISTS counts (key INTEGER PRIMARY KEY, count INTEGER)")
    connection.executemany(
        "INSERT INTO counts VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET count = excluded.count", rows
    )
    connection.commit()
    connection.close()


numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
counts = numbers.groupBy((F.col("value") % 100).alias("key")).count()
query = counts.writeStream.outputMode("update").option("checkpointLocation", checkpoint).foreachBatch(upsert).start()
while query.lastProgress is None or query.lastProgress["batchId"] < batches:
    query.awaitTermination(1)
query.stop()
for progress in query.recentProgress:
    print(json.dumps({"batch": progress["batchId"], "duration_ms": progress["durationMs"]["triggerExecution"]}))
spark.stop()
