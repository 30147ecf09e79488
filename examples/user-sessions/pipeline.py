"""How long each user stayed: state of our own for each user, which ends after half an hour without an event."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState

import headrace as hr

HALF_AN_HOUR = 30 * 60

events = hr.source.files(
    "landing", format="json", schema="user STRING, time TIMESTAMP", watermark=("time", "10 minutes")
)


def follow(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Called with a user's new events, or, without any, when the user's time is over."""
    if state.hasTimedOut:
        first, last, count = state.get
        state.remove()
        yield pd.DataFrame({"user": [key[0]], "events": [count], "minutes": [(last - first) // 60]})
        return
    first, last, count = state.get if state.exists else (None, 0, 0)
    for frame in frames:
        seconds = [int(time.timestamp()) for time in frame["time"]]
        first = min(seconds) if first is None else min(first, *seconds)
        last = max(last, *seconds)
        count += len(seconds)
    state.update((first, last, count))
    state.setTimeoutTimestamp((last + HALF_AN_HOUR) * 1000)


@hr.query(sink=hr.sink.sqlite("result.db", table="stays"), trigger=hr.available_now)
def stays(events: DataFrame) -> Any:
    """A row for each stay that is over."""
    result = "user STRING, events LONG, minutes LONG"
    state = "first LONG, last LONG, count LONG"
    return events.groupBy("user").applyInPandasWithState(follow, result, state, "append", "EventTimeTimeout")
