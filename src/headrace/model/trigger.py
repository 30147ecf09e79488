"""When a query makes its next batch, and how often it is started again after a failure.

Source: Structured Streaming guide, "Triggers".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeAlias

from headrace.units import Duration, some_time

_SECOND, _FIVE_MINUTES, _TEN_MINUTES = map(Duration.parse, ("1 second", "5 minutes", "10 minutes"))


class _Trigger:
    """`ends`: a query with it ends by itself. `_says`: what it is, for messages."""

    ends: ClassVar[bool] = False
    _says: ClassVar[str]

    def __str__(self) -> str:
        return self._says.format(self)


@dataclass(frozen=True)
class Default(_Trigger):
    """As soon as the last batch is done."""

    _says = "as soon as the last batch is done"


@dataclass(frozen=True)
class Every(_Trigger):
    """At a fixed interval; a batch that takes longer is followed at once by the next, and none is made without data."""

    interval: Duration
    _says = "every {0.interval}"


@dataclass(frozen=True)
class AvailableNow(_Trigger):
    """Everything that is there at the start, in as many batches as the rate limits ask for, and then the end."""

    ends = True
    _says = "available now"


@dataclass(frozen=True)
class Once(_Trigger):
    """Everything that is there at the start, in one batch. Deprecated by Spark: available-now keeps the rate limits."""

    ends = True
    _says = "once"


@dataclass(frozen=True)
class Continuous(_Trigger):
    """No batches: rows go through one by one, with a checkpoint at a fixed interval; at least once.

    Source: Structured Streaming guide, "Continuous Processing".
    """

    interval: Duration
    _says = "continuously, with a checkpoint every {0.interval}"


@dataclass(frozen=True)
class RealTime(_Trigger):
    """Long batches, whose rows go through all stages as they come; `interval` is the length of a batch.

    Source: org.apache.spark.sql.execution.streaming.RealTimeTrigger, Spark 4.1 and newer.
    """

    interval: Duration
    _says = "in real time, with a checkpoint every {0.interval}"


Trigger: TypeAlias = Default | Every | AvailableNow | Once | Continuous | RealTime
TRIGGERS = (Default, Every, AvailableNow, Once, Continuous, RealTime)


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A restart policy: the pause doubles with each failure, and the count of failures begins again after a quiet time.

    limit: after so many restarts the next failure is final; 0: none is made; None: there is no limit. pause: before the
    first restart. longest_pause: before any. quiet: how long a query runs without a failure until it begins again.
    """

    limit: int | None = None
    pause: Duration = _SECOND
    longest_pause: Duration = _FIVE_MINUTES
    quiet: Duration = _TEN_MINUTES

    def pause_before(self, restart: int) -> float:
        """The seconds before the restart of this number, counted from 1."""
        # 2 ** 1000 is more than a float holds.
        return float(min(self.pause.seconds * 2 ** min(restart - 1, 60), self.longest_pause.seconds))


RESTART_KEYS = tuple(field.name for field in fields(Restart))
NEVER = "never"
EXAMPLE = "restart: {limit: 8, pause: 1 second, longest_pause: 5 minutes, quiet: 10 minutes}, or restart: never"


def parse_restart(given: Any) -> tuple[Restart, tuple[str, ...]]:
    """The policy that a mapping or a word declares, and a sentence for each thing that is wrong with it."""
    if not isinstance(given, (str, Mapping)):
        return Restart(), (f"restart is {given!r}, and takes keys and values or '{NEVER}'",)
    if isinstance(given, str):
        wrong = () if given == NEVER else (f"restart has no word '{given}'",)
        return replace(Restart(), limit=0), wrong
    values: dict[str, Any] = {}
    faults = []
    for key, value in given.items():
        try:
            values[key] = _read(key, value)
        except ValueError as error:
            faults.append(str(error))
    policy = replace(Restart(), **values)
    if policy.longest_pause.seconds < policy.pause.seconds:
        faults.append(f"restart, longest_pause: {policy.longest_pause} is shorter than the pause of {policy.pause}")
    return policy, tuple(faults)


def _read(key: str, value: Any) -> int | Duration:
    if key not in RESTART_KEYS:
        raise ValueError(f"restart has no key '{key}'")
    if key == "limit":
        if not str(value).isdigit():
            raise ValueError(f"restart, limit: '{value}' is not a whole number from 0")
        return int(value)
    try:
        return some_time(str(value))
    except ValueError as error:
        raise ValueError(f"restart, {key}: {error}") from error
