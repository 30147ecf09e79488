"""What a timeline is made of: batches of rows, and the events that stand between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from headrace.contract import Boundary
from headrace.errors import ProjectError
from headrace.testing.given import GivenRows
from headrace.units import Duration


class TimelineEvent:
    """What happens between two batches of a timeline, after the one that it stands behind."""


@dataclass(frozen=True)
class Crash(TimelineEvent):
    """The driver dies in the batch before it, after the sink's commit and before the checkpoint's; then it resumes."""

    boundary: Boundary = field(default="after-transaction", init=False)


@dataclass(frozen=True)
class CrashBeforeCommit(TimelineEvent):
    """The driver dies in the batch before it, when its rows are written and not committed; then it resumes."""

    boundary: Boundary = field(default="inside-transaction", init=False)


@dataclass(frozen=True)
class RestartEvent(TimelineEvent):
    """The query is stopped and started again."""


@dataclass(frozen=True)
class WatermarkEvent(TimelineEvent):
    """The watermark of this input moves to `time`, as by a row that the query does not see."""

    time: str | datetime


@dataclass(frozen=True)
class Pause(TimelineEvent):
    """A trigger without input: Spark makes a batch without rows where timers of processing time wait for one."""


@dataclass(frozen=True)
class Clock(TimelineEvent):
    """The clock of batches moves on by this time, as "+5 min", and timers that are due fire.

    In a timeline with such an event the clock begins at 2024-01-01 00:00 UTC, and moves by these events alone.
    """

    by: str

    @property
    def milliseconds(self) -> int:
        """The length of the move, in milliseconds.

        Raises:
            ProjectError: `by` is not a length of time.
        """
        try:
            return Duration.parse(self.by.strip().removeprefix("+")).milliseconds
        except ValueError as error:
            raise ProjectError(code="HR721", what=f"{self}: {error}", fix='write Clock("+5 min")') from None


@dataclass(frozen=True, init=False)
class Refresh(TimelineEvent):
    """Tables, or values of broadcasts, get other rows: the next batch is the first to see them.

    It may also stand before the first batch, which sees them from the beginning.
    """

    tables: Mapping[str, Any]

    def __init__(self, /, **tables: Any) -> None:
        object.__setattr__(self, "tables", tables)


Restart, Watermark = RestartEvent, WatermarkEvent
Item: TypeAlias = "TimelineEvent | GivenRows"


@dataclass
class TimelineStep:
    """The batches that come together, what happens after them, and the tables that are given before them."""

    rows: dict[str, GivenRows] = field(default_factory=dict)
    events: list[tuple[str, TimelineEvent]] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict)


def steps_of(inputs: Mapping[str, Sequence[Item]]) -> list[TimelineStep]:
    """Return the batches of all inputs by their number, each with the events behind it.

    Raises:
        ProjectError: There is no batch, or an event stands before the first one.
    """
    steps: list[TimelineStep] = []
    first: dict[str, Any] = {}
    for name, items in inputs.items():
        at = -1
        for item in items:
            if at < 0 and isinstance(item, Refresh):
                first.update(item.tables)
                continue
            if isinstance(item, TimelineEvent):
                if at < 0:
                    problem = f"{item} stands before the first batch of '{name}'"
                    raise ProjectError(code="HR721", what=problem, fix="put it behind a batch")
                steps[at].events.append((name, item))
                continue
            at += 1
            if at == len(steps):
                steps.append(TimelineStep())
            steps[at].rows[name] = item
    if not steps:
        fix = 'give a list of batches for a source: timeline("q", events=[[row, row], [row]])'
        raise ProjectError(code="HR721", what="the timeline has no batch", fix=fix)
    steps[0].tables = first
    return steps
