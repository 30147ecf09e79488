"""Each batch of alarms to two places: CSV files for the office, JSON files for a program."""

from pathlib import Path

from pyspark.sql import DataFrame

import headrace as hr

OUT = Path(__file__).with_name("out")

readings = hr.source.files("landing", format="json", schema="sensor STRING, celsius DOUBLE")


def write(frame: DataFrame, batch: int) -> None:
    """Replace what was written under the same number, so that a batch may come again."""
    frame.coalesce(1).write.mode("overwrite").csv(str(OUT / "office" / f"batch={batch}"))
    frame.coalesce(1).write.mode("overwrite").json(str(OUT / "program" / f"batch={batch}"))


@hr.query(sink=hr.sink.foreach_batch(write, idempotent=True), trigger=hr.available_now)
def alarms(readings: DataFrame) -> DataFrame:
    """What was hotter than 30 degrees."""
    return readings.where("celsius > 30")
