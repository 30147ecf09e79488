"""Each event once, though senders repeat an event when they got no answer."""

from pyspark.sql import DataFrame

import headrace as hr

events = hr.source.files("landing", format="json", schema="guid STRING, time TIMESTAMP", watermark=("time", "1 hour"))


@hr.query(sink=hr.sink.sqlite("result.db", table="events_once"), trigger=hr.available_now)
def events_once(events: DataFrame) -> DataFrame:
    """A repeated event is known by its guid for an hour of event time, whatever its own time says."""
    return events.dropDuplicatesWithinWatermark(["guid"])
