"""Actions per hour into SQLite, as an expert writes it: Spark tuned by hand, and each batch exactly once by hand.

python headline_expert.py LANDING DATABASE CHECKPOINT [limited|unlimited]
"""

import sqlite3
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

landing, database, checkpoint, limit = sys.argv[1:5]
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
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA synchronous = FULL")
connection.execute(
    "CREATE TABLE IF NOT EXISTS counts (action TEXT, hour TEXT, count INTEGER, PRIMARY KEY (action, hour))"
)
connection.execute("CREATE TABLE IF NOT EXISTS batches (query TEXT PRIMARY KEY, batch INTEGER)")


def upsert(frame: DataFrame, batch: int) -> None:
    rows = [(row["action"], row["hour"].isoformat(), row["count"]) for row in frame.collect()]
    connection.execute("BEGIN IMMEDIATE")
    try:
        last = connection.execute("SELECT batch FROM batches WHERE query = 'counts'").fetchone()
        if last is None or last[0] < batch:
            connection.executemany(
                "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (action, hour) DO UPDATE SET count = excluded.count",
                rows,
            )
            connection.execute("INSERT OR REPLACE INTO batches VALUES ('counts', ?)", (batch,))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


reader = spark.readStream.schema("phone_id STRING, time TIMESTAMP, action STRING")
if limit == "limited":
    reader = reader.option("maxFilesPerTrigger", 1)
events = reader.json(landing).withWatermark("time", "10 minutes")
counts = (
    events.groupBy("action", F.window("time", "1 hour"))
    .count()
    .select("action", F.col("window.start").alias("hour"), "count")
)
query = (
    counts.writeStream.outputMode("update")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .foreachBatch(upsert)
    .start()
)
query.awaitTermination()
spark.stop()
