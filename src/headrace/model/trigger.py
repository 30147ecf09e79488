"""When a query makes its next batch.

Source: Structured Streaming guide, "Triggers".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headrace.units import Duration


@dataclass(frozen=True)
class Default:
    """As soon as the last batch is done."""

    ends = False

    def __str__(self) -> str:
        return "as soon as the last batch is done"


@dataclass(frozen=True)
class Every:
    """At a fixed interval; a batch that takes longer is followed at once by the next, and none is made without data."""

    interval: Duration
    ends = False

    def __str__(self) -> str:
        return f"every {self.interval}"


@dataclass(frozen=True)
class AvailableNow:
    """Everything that is there at the start, in as many batches as the rate limits ask for, and then the end."""

    ends = True

    def __str__(self) -> str:
        return "available now"


@dataclass(frozen=True)
class Once:
    """Everything that is there at the start, in one batch. Deprecated by Spark: available-now keeps the rate limits."""

    ends = True

    def __str__(self) -> str:
        return "once"


@dataclass(frozen=True)
class Continuous:
    """No batches: rows go through one by one, with a checkpoint at a fixed interval; at least once.

    Source: Structured Streaming guide, "Continuous Processing".
    """

    interval: Duration
    ends = False

    def __str__(self) -> str:
        return f"continuously, with a checkpoint every {self.interval}"


@dataclass(frozen=True)
class RealTime:
    """Long batches, whose rows go through all stages as they come; `interval` is the length of a batch.

    Source: org.apache.spark.sql.execution.streaming.RealTimeTrigger, Spark 4.1 and newer.
    """

    interval: Duration
    ends = False

    def __str__(self) -> str:
        return f"in real time, with a checkpoint every {self.interval}"


Trigger: TypeAlias = Default | Every | AvailableNow | Once | Continuous | RealTime
TRIGGERS = (Default, Every, AvailableNow, Once, Continuous, RealTime)
