"""A session with Spark's defaults, and two trivial jobs."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.range(3).count()
spark.range(3).count()
print("done", flush=True)
spark.stop()
