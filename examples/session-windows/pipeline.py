"""The sessions of each user: a session ends when nothing came for as long as the user's kind of visit may pause."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headrace as hr

visits = hr.source.files(
    "landing", format="json", schema="time TIMESTAMP, user STRING", watermark=("time", "10 minutes")
)


@hr.query(sink=hr.sink.sqlite("result.db", table="sessions"), trigger=hr.available_now)
def sessions(visits: DataFrame) -> DataFrame:
    """How many visits each session has, once it is over."""
    pause = F.when(F.col("user") == "user1", "5 seconds").when(F.col("user") == "user2", "20 seconds")
    session = F.session_window("time", pause.otherwise("5 minutes"))
    counts = visits.groupBy(session.alias("session"), "user").count()
    return counts.select("user", F.col("session.start").alias("since"), F.col("session.end").alias("until"), "count")
