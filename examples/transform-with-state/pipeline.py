"""Which sensors have gone silent: a timer for each sensor, set by its newest reading."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headrace as hr

TEN_MINUTES_MS = 10 * 60 * 1000
RESULT = "sensor STRING, readings LONG, status STRING"

readings = hr.source.files(
    "landing", format="json", schema="sensor STRING, time TIMESTAMP", watermark=("time", "5 minutes")
)


class Watch(StatefulProcessor):
    """Counts a sensor's readings, and notices when none came for ten minutes of event time."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.known = handle.getValueState("known", "readings LONG, newest LONG")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        times = [int(row.time.timestamp() * 1000) for row in rows]
        count, newest = self.known.get() if self.known.exists() else (0, 0)
        count, newest = count + len(times), max(newest, *times)  # A reading may come behind a newer one.
        self.known.update((count, newest))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(newest + TEN_MINUTES_MS)
        yield Row(sensor=key[0], readings=count, status="active")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(sensor=key[0], readings=self.known.get()[0], status="silent")

    def close(self) -> None:
        pass


@hr.query(sink=hr.sink.sqlite("result.db", table="sensors", key=["sensor"]), mode="update", trigger=hr.available_now)
def sensors(readings: DataFrame) -> DataFrame:
    """One row for each sensor, replaced when its status changes."""
    return readings.groupBy("sensor").transformWithState(Watch(), RESULT, "update", "EventTime")
