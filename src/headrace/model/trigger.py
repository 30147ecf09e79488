"""When a query makes its next batch.

Source: Structured Streaming guide, "Triggers".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headrace.model.duration import Duration


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


Trigger: TypeAlias = Default | Every | AvailableNow | Once
