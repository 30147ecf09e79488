"""How long each side of a join of two streams is kept, and when its rows without a match come out.

Source: Structured Streaming guide, "Stream-stream Joins": a row is needed as long as the other input may still give a
match, which is the other's watermark delay and the range that the join's condition leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.join_plan import JoinSide, StreamJoin

_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"), (1, "millisecond"))
OUTER = {"left outer": ("left",), "right outer": ("right",), "full outer": ("left", "right")}
_BOUND = (
    "give both sources a watermark and bound the one time by the other in the join condition, by intervals of days or "
    "less: b.time BETWEEN a.time AND a.time + INTERVAL 1 HOUR"
)


def joins(query: Query, found: Sequence[StreamJoin], *, policy: str = "min") -> Iterator[Finding]:
    """What a user should know of the joins of two streams in `query`; `policy`: of several watermarks."""
    for join in found:
        yield from _unbounded(query, join)
        yield from _kept(query, join, policy)
        yield from _without_match(query, join, policy)


def kept_ms(side: JoinSide, other: JoinSide) -> int | None:
    """For how long a row of `side` is needed, in event time of the other input; None: indefinitely."""
    delay = other.delay if other.delay is not None else side.delay
    if side.behind is None or delay is None:
        return None
    return max(0, delay + side.behind)


def length(ms: int) -> str:
    """A length of time in the largest unit that gives a whole number."""
    size, unit = next((size, unit) for size, unit in _UNITS if ms % size == 0 and (ms or unit == "second"))
    return f"{ms // size} {unit}{'' if ms // size == 1 else 's'}"


def join_sides(join: StreamJoin) -> tuple[tuple[JoinSide, JoinSide], ...]:
    """Each side of a join with the other one."""
    return (join.left, join.right), (join.right, join.left)


def _unbounded(query: Query, join: StreamJoin) -> Iterator[Finding]:
    kept = [side for side, other in join_sides(join) if kept_ms(side, other) is None]
    bare = [side for side in (join.left, join.right) if side.delay is None]
    fix = _BOUND
    reason = f"{_all(bare)} {'has' if len(bare) == 1 else 'have'} no watermark"
    if not bare:
        reason = f"the join condition does not bound the time of {_all(kept, ' and of ')} in a way that Spark can read"
        fix = f"{_BOUND}; of windows equate the whole window columns (a.window = b.window), not their start and end"
    if kept:
        yield Finding(
            code="HR240",
            what=f"query '{query.name}' keeps every row of {_all(kept, ' and of ')} indefinitely to join it: {reason}",
            fix=fix,
            where=query.where,
        )


def _kept(query: Query, join: StreamJoin, policy: str) -> Iterator[Finding]:
    if not _direct(join):
        if any(kept_ms(*pair) is not None for pair in join_sides(join)):
            yield _note(
                query,
                f"lets go of the rows that it joins of {side_name(join.left)} and {side_name(join.right)} by the "
                "watermark; how long that takes cannot be determined, because an operator before the join holds rows "
                "back",
                "nothing is to be done",
            )
        return
    parts = []
    delays = [side.delay for side in (join.left, join.right) if side.delay is not None]
    for side, other in join_sides(join):
        kept = kept_ms(side, other)
        if kept is None or side.behind is None:
            continue
        pace = max(0, (min(delays) if policy == "max" else max(delays)) + side.behind)
        extra = f" ({length(pace)} while both inputs keep pace)" if pace != kept else ""
        after = " after its window's end" if join.windows else ""
        parts.append(f"of {side_name(side)} {length(kept)}{after}{extra}")
    if parts:
        yield _note(
            query,
            f"keeps each row {' and '.join(parts)} to join it, in event time of the other input",
            "nothing is to be done; Spark lets go by one watermark, that of the input which is furthest "
            + ("ahead, so rows of the other may miss their match" if policy == "max" else "back"),
        )


def _without_match(query: Query, join: StreamJoin, policy: str) -> Iterator[Finding]:
    """When the rows of an outer join come out that found no match: as soon as Spark lets go of them."""
    for which in OUTER.get(join.kind, ()):
        side = join.left if which == "left" else join.right
        other = join.right if which == "left" else join.left
        if kept_ms(side, other) is None or side.behind is None:
            yield Finding(
                code="HR276",
                what=f"query '{query.name}' never gives the rows of {side_name(side)} that have no match, because it "
                "keeps them indefinitely",
                fix=_BOUND,
                where=query.where,
                severity="warning",
            )
        elif _direct(join):
            past = [
                f"{side_name(each)} is {length(max(0, each.delay + side.behind))}"
                for each in (join.left, join.right)
                if each.delay is not None
            ]
            yield Finding(
                code="HR276",
                what=f"query '{query.name}' gives a row of {side_name(side)} that has no match when "
                f"{(' or ' if policy == 'max' else ' and ').join(past)} past "
                + ("its window's end" if join.windows else "its time"),
                fix="nothing is to be done; shorter delays and ranges give these rows earlier, and an input without "
                "new events holds them back",
                where=query.where,
            )


def _direct(join: StreamJoin) -> bool:
    return join.left.direct and join.right.direct


def side_name(side: JoinSide) -> str:
    """The sources of a side, in words."""
    return ", ".join(f"'{name}'" for name in side.sources) or "one side"


def _all(sides: Sequence[JoinSide], between: str = " and ") -> str:
    return between.join(map(side_name, sides))


def _note(query: Query, what: str, fix: str) -> Finding:
    return Finding(code="HR275", what=f"query '{query.name}' {what}", fix=fix, where=query.where)
