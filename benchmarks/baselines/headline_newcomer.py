"""Actions per hour into SQLite, as a newcomer writes it: Spark's defaults and a plain foreachBatch.

python headline_newcomer.py LANDING DATABASE CHECKPOINT [limited|unlimited]
"""

import sqlite3
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

landing, database, checkpoint, limit = sys.argv[1:5]
spark = SparkSession.builder.master("local[2]").getOrCreate()


def upsert(frame: DataFrame, batch: int) -> None:
    rows = [(row["action"], row["hour"].isoformat(), row["count"]) for row in frame.collect()]
    connection = sqlite3.connect(database)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS counts (action TEXT, hour TEXT, count INTEGER, PRIMARY KEY (action, hour))"
    )
    connection.executemany(
        "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (action, hour) DO UPDATE SET count = excluded.count", rows
    )
    connection.commit()
    connection.close()


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
