"""Count per key into SQLite, as an expert writes it: Spark tuned by hand, and each batch exactly once by hand.

python micro_batch_expert.py DATABASE CHECKPOINT BATCHES
"""

import json
import sqlite3
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

database, checkpoint, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
STREAMING = "spark.sql.streaming"
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", "2")
    .config(
        f"{STREAMING}.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .config(f"{STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    .config(
        f"{STREAMING}.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    )
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA synchronous = FULL")
connection.execute("CREATE TABLE IF NOT EXISTS counts (key INTEGER PRIMARY KEY, count INTEGER)")
connection.execute("CREATE TABLE IF NOT EXISTS batches (query TEXT PRIMARY KEY, batch INTEGER)")


def upsert(frame: DataFrame, batch: int) -> None:
    rows = [(row["key"], row["count"]) for row in frame.collect()]
    connection.execute("BEGIN IMMEDIATE")
    try:
        last = connection.execute("SELECT batch FROM batches WHERE query = 'counts'").fetchone()
        if last is None or last[0] < batch:
            connection.executemany(
                "INSERT INTO counts VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET count = excluded.count", rows
            )
            connection.execute("INSERT OR REPLACE INTO batches VALUES ('counts', ?)", (batch,))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
counts = numbers.groupBy((F.col("value") % 100).alias("key")).count()
query = counts.writeStream.outputMode("update").option("checkpointLocation", checkpoint).foreachBatch(upsert).start()
while query.lastProgress is None or query.lastProgress["batchId"] < batches:
    query.awaitTermination(1)
query.stop()
for progress in query.recentProgress:
    print(json.dumps({"batch": progress["batchId"], "duration_ms": progress["durationMs"]["triggerExecution"]}))
spark.stop()
