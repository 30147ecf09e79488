"""How long each operator of a query keeps its state, and by how much its results come later for that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.check.joins import OUTER, join_sides, kept_ms, length, side_name
from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.join_plan import StreamJoin
from headrace.spark.kept_state import KeptState

_TIMEOUTS = {
    "event time": "until its function removes it, or its timeout by event time is past",
    "clock": "until its function removes it, or its timeout by the clock is past",
    "none": "until its function removes it; nothing else does",
}


@dataclass(frozen=True, kw_only=True)
class StateBound:
    """What one operator keeps, and for how long; times are in milliseconds of event time.

    by: its keys. bounded: something other than the user's own function lets it go.
    kept: for each of its parts, how long a row or a group of it is kept; None: indefinitely, or by what only the
        function knows. until: the same in words.
    later: by how much what it gives comes later than the rows that it is made of, at the earliest; None: by nothing,
        or it cannot be determined. appears: the same in words; empty where rows come out at once.
    """

    operator: str
    by: tuple[str, ...] = ()
    bounded: bool
    kept: Mapping[str, int | None]
    until: str
    later: int | None = None
    appears: str = ""

    @property
    def sentence(self) -> str:
        """The bound in one line."""
        of = f" by {', '.join(self.by)}" if self.by else ""
        return f"{self.operator}{of}: kept {self.until}" + (f"; {self.appears}" if self.appears else "")

    def as_dict(self) -> dict[str, Any]:
        """The bound as plain data, for `--json`."""
        found = asdict(self)
        return {
            **{name: found[name] for name in ("operator", "by", "bounded")},
            "kept_ms": dict(self.kept),
            "until": self.until,
            "later_ms": self.later,
            "appears": self.appears,
            "sentence": self.sentence,
        }


def state_bounds(
    query: Query, states: Sequence[KeptState], joins: Sequence[StreamJoin], *, policy: str = "min"
) -> tuple[StateBound, ...]:
    """The bound of each operator, in the order in which rows come to them; `policy`: of several watermarks."""
    return tuple(_bound(query, state, joins, policy) for state in states)


def unremoved(query: Query, states: Sequence[KeptState]) -> Iterator[Finding]:
    """State that only the user's own function can let go."""
    for state in states:
        if state.kind == "arbitrary state" and state.timeout == "none":
            yield Finding(
                code="HR240",
                what=f"query '{query.name}' keeps the state of its function"
                + (f" by {', '.join(state.by)}" if state.by else "")
                + " until the function removes it, and nothing else bounds it",
                fix="let the function remove what is finished, or give it a timeout (EventTimeTimeout or "
                "ProcessingTimeTimeout), a timer or a time to live",
                where=query.where,
                severity="note",
            )


def _bound(query: Query, state: KeptState, joins: Sequence[StreamJoin], policy: str) -> StateBound:
    if state.kind == "join":
        join = joins[state.join] if state.join is not None and state.join < len(joins) else None
        return _of_join(state, join, policy)
    if state.kind == "arbitrary state":
        bounded = state.timeout != "none"
        return StateBound(
            operator=state.kind, by=state.by, bounded=bounded, kept={"key": None}, until=_TIMEOUTS[state.timeout]
        )
    if state.kind == "deduplication within the watermark":
        delay = state.delay or 0
        until = f"until the watermark is {length(delay)} past the first row: {length(2 * delay)} (twice the delay)"
        return StateBound(operator=state.kind, by=state.by, bounded=True, kept={"key": 2 * delay}, until=until)
    if state.kind == "deduplication":
        until = f"until the watermark is past its time: {_sum(state)}" if state.delay is not None else "indefinitely"
        return StateBound(
            operator=state.kind,
            by=state.by,
            bounded=state.delay is not None,
            kept={"key": state.delay},
            until=until,
        )
    return _of_groups(query, state)


def _of_groups(query: Query, state: KeptState) -> StateBound:
    part = "session" if state.kind == "session windows" else "group"
    if not state.by:
        return StateBound(operator=state.kind, bounded=True, kept={part: None}, until="indefinitely, as one row")
    if query.mode == "complete" or state.delay is None:
        until = "indefinitely, as complete mode keeps every group" if query.mode == "complete" else "indefinitely"
        return StateBound(operator=state.kind, by=state.by, bounded=False, kept={part: None}, until=until)
    ends = {"session": "its end", "group": "its window's end" if state.window is not None else "its time"}[part]
    kept = None if part == "session" and state.window is None else (state.window or 0) + state.delay
    later = state.delay if query.mode == "append" else None
    whose = "a session's row" if part == "session" else "a window's row" if state.window is not None else "a row"
    return StateBound(
        operator=state.kind,
        by=state.by,
        bounded=True,
        kept={part: kept},
        until=f"until the watermark is past {ends}: {_sum(state)}",
        later=later,
        appears=f"{whose} comes {length(later)} after {ends} at the earliest, in event time" if later else "",
    )


def _sum(state: KeptState) -> str:
    """The parts that a time is made of, each with its word."""
    delay = f"{length(state.delay or 0)} (delay)"
    if state.kind == "session windows":
        gap = "the row's own gap" if state.window is None else f"{length(state.window)} (gap)"
        return f"{gap} + {delay} after its last row"
    return f"{length(state.window)} (window) + {delay}" if state.window is not None else delay


def _of_join(state: KeptState, join: StreamJoin | None, policy: str) -> StateBound:
    if join is None:
        until = "by the watermark, for a time that cannot be determined"
        return StateBound(operator="join", by=state.by, bounded=True, kept={}, until=until)
    told = [(side_name(side), kept_ms(side, other)) for side, other in join_sides(join)]
    after = " after its window's end" if join.windows else ""
    parts = [f"{name} {'indefinitely' if kept is None else length(kept) + after}" for name, kept in told]
    exact = join.left.direct and join.right.direct
    later = [ms for ms in (_without_match_ms(join, which, policy) for which in OUTER.get(join.kind, ())) if ms]
    until = ", ".join(parts) + ("" if exact else ", and longer by what the operators before it hold rows back")
    rows = " or ".join(side_name(join.left if which == "left" else join.right) for which in OUTER.get(join.kind, ()))
    return StateBound(
        operator="join",
        by=state.by,
        bounded=all(kept is not None for _, kept in told),
        kept={name.strip("'"): kept for name, kept in told},
        until=until,
        later=max(later, default=None),
        appears=f"a row of {rows} without a match comes {length(max(later))} after its time at the earliest"
        if later
        else "",
    )


def _without_match_ms(join: StreamJoin, which: str, policy: str) -> int | None:
    """How long after its time a row without a match comes out, if both inputs keep pace."""
    side, other = (join.left, join.right) if which == "left" else (join.right, join.left)
    delays = [each.delay for each in (join.left, join.right) if each.delay is not None]
    if kept_ms(side, other) is None or side.behind is None or not delays:
        return None
    return max(0, (min(delays) if policy == "max" else max(delays)) + side.behind)
