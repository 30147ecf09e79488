"""The headline job's answer as a plain batch query, whose result is thrown away; `LANDING` is where the events are."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
events = spark.read.schema("phone_id STRING, time TIMESTAMP, action STRING").json(sys.argv[1])
counts = events.groupBy("action", F.window("time", "1 hour")).count()
counts.write.format("noop").mode("overwrite").save()
spark.stop()
