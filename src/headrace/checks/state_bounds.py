"""How long each operator of a query, the sides of its joins among them, keeps its state, and what that delays.

Source: Structured Streaming guide, "Stream-stream Joins": a row is needed as long as the other input may still give a
match, which is the other's watermark delay and the range that the join's condition leaves.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from headrace.errors import Finding, PlainData
from headrace.model import Project, Query
from headrace.model.project import PythonTransform
from headrace.spark.plans.kept_state import KeptState
from headrace.spark.plans.operations import JoinSide, StreamJoin
from headrace.units import Duration

_TIMEOUTS = {
    "event time": "until its function removes it, or its timeout by event time is past",
    "clock": "until its function removes it, or its timeout by the clock is past",
    "none": "until its function removes it; nothing else does",
}
_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"), (1, "millisecond"))
# Which sides of an outer join give rows without a match.
_OUTER = {"left outer": (0,), "right outer": (1,), "full outer": (0, 1)}
_BOUND = (
    "give both sources a watermark and bound the one time by the other in the join condition, by intervals of days or "
    "less: b.time BETWEEN a.time AND a.time + INTERVAL 1 HOUR"
)


@dataclass(frozen=True, kw_only=True)
class StateBound(PlainData):
    """What one operator keeps, and for how long; times are in milliseconds of event time.

    by: its keys. bounded: something other than the user's own function lets it go.
    kept_ms: for each of its parts, how long a row or a group of it is kept; None: indefinitely, or by what only the
        function knows. until: the same in words.
    later_ms: by how much what it gives comes later than the rows that it is made of, at the earliest; None: by nothing,
        or it cannot be determined. appears: the same in words; empty where rows come out at once.
    """

    derived: ClassVar[tuple[str, ...]] = ("sentence",)
    operator: str
    by: tuple[str, ...] = ()
    bounded: bool
    kept_ms: Mapping[str, int | None]
    until: str
    later_ms: int | None = None
    appears: str = ""

    @property
    def sentence(self) -> str:
        """The bound in one line."""
        of = f" by {', '.join(self.by)}" if self.by else ""
        return f"{self.operator}{of}: kept {self.until}" + (f"; {self.appears}" if self.appears else "")


def state_bounds(
    query: Query, states: Sequence[KeptState], joins: Sequence[StreamJoin], *, policy: str = "min"
) -> tuple[StateBound, ...]:
    """Return the bound of each operator, in the order in which rows reach them; `policy`: of several watermarks."""
    return tuple(_bound_of(query, state, joins, policy) for state in states)


def check_unbounded_functions(query: Query, states: Sequence[KeptState]) -> Iterator[Finding]:
    """Report state that only the user's own function removes."""
    for state in states:
        if state.kind == "arbitrary state" and state.timeout == "none":
            yield query.finding(
                "HR240",
                "keeps the state of its function"
                + (f" by {', '.join(state.by)}" if state.by else "")
                + " until the function removes it, and nothing else bounds it",
                "let the function remove what is finished, or give it a timeout (EventTimeTimeout or "
                "ProcessingTimeTimeout); with transformWithState a timer (timeMode EventTime or ProcessingTime) or a "
                "time to live (ttlDurationMs, timeMode ProcessingTime)",
                severity="note",
            )


def _bound_of(query: Query, state: KeptState, joins: Sequence[StreamJoin], policy: str) -> StateBound:
    bound = partial(StateBound, operator=state.kind, by=state.by)
    if state.kind == "join":
        join = joins[state.join] if state.join is not None and state.join < len(joins) else None
        return _bound_of_join(bound, join, policy)
    if state.kind == "arbitrary state":
        return bound(bounded=state.timeout != "none", kept_ms={"key": None}, until=_TIMEOUTS[state.timeout])
    if state.kind == "deduplication within the watermark":
        delay = state.delay or 0
        twice = f"{length_text(2 * delay)} (twice the delay)"
        until = f"until the watermark is {length_text(delay)} past the first row: {twice}"
        return bound(bounded=True, kept_ms={"key": 2 * delay}, until=until)
    if state.kind == "deduplication":
        until = (
            f"until the watermark is past its time: {_delay_text(state)}" if state.delay is not None else "indefinitely"
        )
        return bound(bounded=state.delay is not None, kept_ms={"key": state.delay}, until=until)
    return _bound_of_groups(bound, query, state)


def _bound_of_groups(bound: Callable[..., StateBound], query: Query, state: KeptState) -> StateBound:
    part = "session" if state.kind == "session windows" else "group"
    if not state.by:
        return bound(bounded=True, kept_ms={part: None}, until="indefinitely, as one row")
    if query.mode == "complete" or state.delay is None:
        until = "indefinitely, as complete mode keeps every group" if query.mode == "complete" else "indefinitely"
        return bound(bounded=False, kept_ms={part: None}, until=until)
    ends = {"session": "its end", "group": "its window's end" if state.window is not None else "its time"}[part]
    kept = None if part == "session" and state.window is None else (state.window or 0) + state.delay
    later = state.delay if query.mode == "append" else None
    whose = "a session's row" if part == "session" else "a window's row" if state.window is not None else "a row"
    return bound(
        bounded=True,
        kept_ms={part: kept},
        until=f"until the watermark is past {ends}: {_delay_text(state)}",
        later_ms=later,
        appears=f"{whose} comes {length_text(later)} after {ends} at the earliest, in event time" if later else "",
    )


def _delay_text(state: KeptState) -> str:
    """Return the parts that a time is made of, each with its word."""
    delay = f"{length_text(state.delay or 0)} (delay)"
    if state.kind == "session windows":
        gap = "the row's own gap" if state.window is None else f"{length_text(state.window)} (gap)"
        return f"{gap} + {delay} after its last row"
    return f"{length_text(state.window)} (window) + {delay}" if state.window is not None else delay


def _bound_of_join(bound: Callable[..., StateBound], join: StreamJoin | None, policy: str) -> StateBound:
    if join is None:
        return bound(bounded=True, kept_ms={}, until="by the watermark, for a time that cannot be determined")
    kept_by_side = [(_side_name(side), kept_ms(side, other)) for side, other in _join_sides(join)]
    after = " after its window's end" if join.windows else ""
    parts = [f"{name} {'indefinitely' if kept is None else length_text(kept) + after}" for name, kept in kept_by_side]
    later = [ms for side, other in _outer_sides(join) if (ms := _pace_ms(join, side, other, policy))]
    until = ", ".join(parts)
    until += "" if _is_direct(join) else ", and longer by what the operators before it hold rows back"
    rows = _name_sides([side for side, _ in _outer_sides(join)], " or ")
    return bound(
        bounded=all(kept is not None for _, kept in kept_by_side),
        kept_ms={name.strip("'"): kept for name, kept in kept_by_side},
        until=until,
        later_ms=max(later, default=None),
        appears=f"a row of {rows} without a match comes {length_text(max(later))} after its time at the earliest"
        if later
        else "",
    )


def _pace_ms(join: StreamJoin, side: JoinSide, other: JoinSide, policy: str) -> int | None:
    """Return how long a row of `side` is kept if both inputs keep pace; None: indefinitely."""
    delays = [one.delay for one in (join.left, join.right) if one.delay is not None]
    if side.behind is None or kept_ms(side, other) is None:
        return None
    return max(0, (min(delays) if policy == "max" else max(delays)) + side.behind)


def check_joins(query: Query, stream_joins: Sequence[StreamJoin], *, policy: str = "min") -> Iterator[Finding]:
    """Report what a user should know of the joins of two streams in `query`; `policy`: of several watermarks."""
    for join in stream_joins:
        yield from _check_null_keys(query, join)
        if misplaced := list(_check_misplaced(query, join)):
            yield from misplaced
            continue
        yield from _check_unbounded(query, join)
        yield from _report_kept(query, join, policy)
        yield from _report_rows_without_match(query, join, policy)


def kept_ms(side: JoinSide, other: JoinSide) -> int | None:
    """Return how long a row of `side` is needed, in event time of the other input; None: indefinitely."""
    delay = other.delay if other.delay is not None else side.delay
    if side.behind is None or delay is None:
        return None
    return max(0, delay + side.behind)


def length_text(ms: int) -> str:
    """Return a length of time in the largest unit that gives a whole number."""
    size, unit = next((size, unit) for size, unit in _UNITS if ms % size == 0 and (ms or unit == "second"))
    return f"{ms // size} {unit}{'' if ms // size == 1 else 's'}"


def _join_sides(join: StreamJoin) -> tuple[tuple[JoinSide, JoinSide], ...]:
    """Return each side of a join with the other one."""
    return (join.left, join.right), (join.right, join.left)


def _outer_sides(join: StreamJoin) -> list[tuple[JoinSide, JoinSide]]:
    """Return the sides whose rows come out without a match, each with the other one."""
    return [_join_sides(join)[at] for at in _OUTER.get(join.kind, ())]


def _check_null_keys(query: Query, join: StreamJoin) -> Iterator[Finding]:
    for left, right in join.null_keys:
        yield query.finding(
            "HR280",
            f"joins {_side_name(join.left)} and {_side_name(join.right)} by {left} and {right}, which may both be "
            "NULL: Spark takes these for equal in a stream, and for different in a batch",
            f"add AND {left} IS NOT NULL to the join condition, which changes nothing else",
        )


def _check_unbounded(query: Query, join: StreamJoin) -> Iterator[Finding]:
    kept = [side for side, other in _join_sides(join) if kept_ms(side, other) is None]
    bare = [side for side in (join.left, join.right) if side.delay is None]
    fix = _BOUND
    reason = f"{_name_sides(bare)} {'has' if len(bare) == 1 else 'have'} no watermark"
    if not bare:
        unbounded = _name_sides(kept, " and of ")
        reason = f"the join condition does not bound the time of {unbounded} in a way that Spark can read"
        fix = f"{_BOUND}; of windows equate the whole window columns (a.window = b.window), not their start and end"
    if kept:
        yield query.finding(
            "HR240", f"keeps every row of {_name_sides(kept, ' and of ')} indefinitely to join it: {reason}", fix
        )


def _check_misplaced(query: Query, join: StreamJoin) -> Iterator[Finding]:
    """Report a join from whose state Spark removes rows that may still get a match (SPARK-58904).

    An outer or semi join gives wrong rows then; an inner one misses matches of rows that are late by no watermark.
    """
    harm = "misses its match" + (", and a row that had one comes out with NULLs" if join.kind in _OUTER else "")
    for side, other in _join_sides(join):
        if side.placed:
            continue
        if join.by_key:
            problem = (
                f"joins {_side_name(side)} and {_side_name(other)} on a column that has a watermark in "
                f"{_side_name(other)} alone: a row of {_side_name(side)} that comes behind it {harm}"
            )
            fix = f"give {_side_name(side)} a watermark on the column that the join compares with that one"
        else:
            problem = (
                f"lets go of rows of {_side_name(side)} by the column that has the watermark, and the join condition "
                f"bounds another one: a row that goes too early {harm}"
            )
            fix = f"bound the column of {_side_name(side)} that has the watermark, or give the watermark to the other"
        yield query.finding("HR296", problem, fix, severity="warning" if join.kind == "inner" else "error")


def _report_kept(query: Query, join: StreamJoin, policy: str) -> Iterator[Finding]:
    if not _is_direct(join):
        if any(kept_ms(*pair) is not None for pair in _join_sides(join)):
            yield query.finding(
                "HR275",
                f"lets go of the rows that it joins of {_side_name(join.left)} and {_side_name(join.right)} by the "
                "watermark; how long that takes cannot be determined, because an operator before the join holds rows "
                "back",
            )
        return
    parts = []
    for side, other in _join_sides(join):
        kept, pace = kept_ms(side, other), _pace_ms(join, side, other, policy)
        if kept is None or pace is None:
            continue
        extra = f" ({length_text(pace)} while both inputs keep pace)" if pace != kept else ""
        after = " after its window's end" if join.windows else ""
        parts.append(f"of {_side_name(side)} {length_text(kept)}{after}{extra}")
    if parts:
        yield query.finding(
            "HR275",
            f"keeps each row {' and '.join(parts)} to join it, in event time of the other input; Spark lets go by one "
            "watermark, that of the input which is furthest "
            + ("ahead, so rows of the other may miss their match" if policy == "max" else "back"),
        )


def _report_rows_without_match(query: Query, join: StreamJoin, policy: str) -> Iterator[Finding]:
    """Report when an outer join gives rows that have no match: as soon as Spark removes them from its state."""
    for side, other in _outer_sides(join):
        if side.behind is None or kept_ms(side, other) is None:
            yield query.finding(
                "HR276",
                f"never gives the rows of {_side_name(side)} that have no match, because it keeps them indefinitely",
                _BOUND,
                severity="warning",
            )
        elif _is_direct(join):
            past = [
                f"{_side_name(one)} is {length_text(max(0, one.delay + side.behind))}"
                for one in (join.left, join.right)
                if one.delay is not None
            ]
            yield query.finding(
                "HR276",
                f"gives a row of {_side_name(side)} that has no match when "
                f"{(' or ' if policy == 'max' else ' and ').join(past)} past "
                + ("its window's end" if join.windows else "its time"),
                "to get these rows earlier, shorten delays and ranges; an input without new events holds them back",
            )


def _is_direct(join: StreamJoin) -> bool:
    return join.left.direct and join.right.direct


def _side_name(side: JoinSide) -> str:
    return ", ".join(f"'{name}'" for name in side.sources) or "one side"


def _name_sides(sides: Sequence[JoinSide], between: str = " and ") -> str:
    return between.join(map(_side_name, sides))


# `window(time, '1 hour')`, also with a slide; a session window has no end that is known before.
_WINDOW = re.compile(
    r"\bwindow\(\s*(?:[^(),]|\([^()]*\))+,\s*(?P<q>['\"])(?P<length>[^'\"]+)(?P=q)"
    r"(?:\s*,\s*(?P<p>['\"])(?P<slide>[^'\"]+)(?P=p))?(?P<more>\s*,)?"
)
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def window_lengths(project: Project, query: Query) -> set[tuple[str, str]]:
    """Return the lengths and slides of windows that stand in the texts of the query and its views."""
    lengths = set()
    for transform in project.transforms_of(query):
        try:
            text = inspect.getsource(transform.function) if isinstance(transform, PythonTransform) else transform.sql
        except (OSError, TypeError):
            continue
        for match in _WINDOW.finditer(text):
            try:
                Duration.parse(match["length"]), Duration.parse(match["slide"] or "1 s")
            except ValueError:
                continue
            if not match["more"]:
                lengths.add((match["length"], match["slide"] or ""))
    return lengths


def check_policy(query: Query, kept: Mapping[str, str], wanted: str) -> Iterator[Finding]:
    """Report a policy other than the one that the last batch of a checkpoint was planned with.

    Spark continues with the old one and says so only in its log.
    """
    begun = kept.get(POLICY)
    if begun is not None and begun.lower() != wanted.lower():
        yield query.finding(
            "HR274",
            f"has several watermarks and was begun with the policy {begun}, not {wanted}",
            f"set {POLICY} to {begun} again, or reset the query (headrace reset QUERY)",
        )
