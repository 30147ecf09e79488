"""What each order is worth: a stream of orders, joined with a price list."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

PRICES = Path(__file__).with_name("prices.csv")

orders = hr.source.files("landing", format="json", schema="id INT, product STRING, quantity INT")


@hr.table
def prices(spark: SparkSession) -> DataFrame:
    """The price list, in cents: bounded, and read whole in each batch."""
    return spark.read.csv(str(PRICES), header=True, schema="product STRING, name STRING, cents INT")


@hr.query(sink=hr.sink.sqlite("result.db", table="worth"), trigger=hr.available_now)
def worth(orders: DataFrame, prices: DataFrame) -> DataFrame:
    """An order of a product that has no price is kept, without a worth."""
    joined = orders.join(prices, "product", "left")
    return joined.select("id", "name", (F.col("quantity") * F.col("cents")).alias("cents"))
