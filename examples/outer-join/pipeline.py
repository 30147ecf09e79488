"""Every advertisement that was shown, with the click that followed within an hour, or with none."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headrace as hr

impressions = hr.source.files(
    "landing/impressions",
    format="json",
    schema="impressionAdId STRING, impressionTime TIMESTAMP",
    watermark=("impressionTime", "2 hours"),
)
clicks = hr.source.files(
    "landing/clicks",
    format="json",
    schema="clickAdId STRING, clickTime TIMESTAMP",
    watermark=("clickTime", "3 hours"),
)


@hr.query(sink=hr.sink.sqlite("result.db", table="shown"), trigger=hr.available_now)
def shown(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    """A row without a click is written when the watermark says that no click can come any more."""
    followed = F.expr("""
        clickAdId = impressionAdId AND clickTime BETWEEN impressionTime AND impressionTime + INTERVAL 1 HOUR
    """)
    return impressions.join(clicks, followed, "leftOuter").select(
        F.col("impressionAdId").alias("ad"),
        F.col("impressionTime").alias("shown"),
        F.col("clickTime").alias("clicked"),
    )
