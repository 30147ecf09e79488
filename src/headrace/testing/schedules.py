"""When rows come: cut into batches, out of order as far as the watermark waits, with crashes between them.

Where none are given they are drawn by a schema alone: keys that collide, times at edges of windows, NULL, NaN, empty
and long texts, old dates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from headrace.testing.events import Crash, CrashBeforeCommit, Item, Restart, TimelineEvent
from headrace.testing.values import DAY, json_value

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy
    from pyspark.sql.types import DataType

    from headrace.testing.given import Inlet
    from headrace.testing.rows import ResultRows

# The values of all columns in their order, or a line of a file.
Row: TypeAlias = "tuple[Any, ...] | str"
_EVENTS = {"crash": Crash(), "crash_before_commit": CrashBeforeCommit(), "restart": Restart()}
# Which rows may overtake others: none, those that a watermark waits for, or also all those of sources without one.
Reorder: TypeAlias = 'Literal["none", "waited for", "all"]'
_MOST_BATCHES = 4
_WIDTH = 100
# By which share of the delay a row is held up: a whole one would be too late.
_SHARES = (0.0, 0.4, 0.8, 0.99)
_MOST_ROWS = 8
_NOON = datetime(DAY.year, DAY.month, DAY.day, 12)
_MINUTES = (0, 1, 4, 5, 9, 10, 15, 29, 30, 45, 60, 61, 90, 120, 180)
_TIMES = (
    *(_NOON + timedelta(minutes=minutes) for minutes in _MINUTES),
    *(_NOON + timedelta(hours=1, microseconds=micros) for micros in (-1, 1)),
    datetime(1970, 1, 1),
    datetime(2000, 2, 29, 23, 59, 59),
)
_TEXTS = ("a", "b", "c", "A", "", "a b", "é", "long " * 100)
# Few and small, that sums are exact in any order.
_NUMBERS = (0, 1, 2, 3, -1, 100)


class Placed(NamedTuple):
    """A row with its place among the rows of its source, as they were given."""

    place: int
    row: Row


@dataclass(frozen=True)
class Step:
    """Rows that come together, by their sources, and what happens after them."""

    rows: Mapping[str, tuple[Placed, ...]]
    event: TimelineEvent | None = None

    @property
    def size(self) -> int:
        """How many rows come."""
        return sum(map(len, self.rows.values()))

    def with_(self, other: Step) -> Step:
        """Return both at once."""
        names = dict.fromkeys([*self.rows, *other.rows])
        rows = {name: (*self.rows.get(name, ()), *other.rows.get(name, ())) for name in names}
        return Step(rows, other.event or self.event)


@dataclass(frozen=True)
class Schedule:
    """The steps in which the rows of all sources come."""

    steps: tuple[Step, ...]

    @classmethod
    def of(cls, rows: Mapping[str, Sequence[Row]]) -> Schedule:
        """Return these rows in one batch."""
        return cls((Step({name: tuple(map(Placed, count(), held)) for name, held in rows.items()}),))

    @property
    def size(self) -> int:
        """How many rows come in all."""
        return sum(step.size for step in self.steps)

    @property
    def whole(self) -> Schedule:
        """All rows in one batch, in the order in which they were given."""
        names = dict.fromkeys(name for step in self.steps for name in step.rows)
        rows = {name: sorted(row for step in self.steps for row in step.rows.get(name, ())) for name in names}
        return Schedule((Step({name: tuple(held) for name, held in rows.items()}),))

    def inputs(self) -> dict[str, list[Item]]:
        """Return what `timeline` takes."""
        names = list(dict.fromkeys(name for step in self.steps for name in step.rows))
        items: dict[str, list[Item]] = {name: [] for name in names}
        for step in self.steps:
            for name in names:
                items[name].append([placed.row for placed in step.rows[name]] if step.rows.get(name) else None)
            if step.event is not None:
                items[names[0]].append(step.event)
        return items

    def smaller(self) -> Iterator[Schedule]:
        """Yield schedules that hold less, those that leave the most out first."""
        steps = self.steps
        if len(steps) > 1 or steps[0].event:
            yield self.whole
        for at, step in enumerate(steps):
            if step.event is not None:
                yield Schedule((*steps[:at], replace(step, event=None), *steps[at + 1 :]))
        for at in range(len(steps) - 1):
            yield Schedule((*steps[:at], steps[at].with_(steps[at + 1]), *steps[at + 2 :]))
        for at in range(len(steps) if len(steps) > 1 else 0):
            yield Schedule((*steps[:at], *steps[at + 1 :]))
        share = self.size // 2
        while share:
            for first in range(0, self.size, share):
                yield self._without(first, first + share)
            share //= 2

    def _without(self, first: int, last: int) -> Schedule:
        number, steps = 0, []
        for step in self.steps:
            rows = {}
            for name, held in step.rows.items():
                rows[name] = tuple(row for at, row in enumerate(held, number) if not first <= at < last)
                number += len(held)
            left = Step(rows, step.event)
            steps += [left] if left.size else []
        return Schedule(tuple(steps))

    def as_python(self, query: str, key: Sequence[str], expected: ResultRows | None) -> str:
        """Return a test by the fixture `timeline`."""
        lines = [f"def test_{query}_over_these_batches(timeline):", "    run = timeline(", f'        "{query}",']
        for name, items in self.inputs().items():
            lines.append(f"        {name}=[")
            for item in items:
                if isinstance(item, TimelineEvent):
                    given = f"{type(item).__name__.removesuffix('Event')}()"
                elif len(given := _literal(item)) > _WIDTH:
                    given = "\n".join(["[", *(f"                {_literal(row)}," for row in item), "            ]"])
                lines.append(f"            {given},")
            lines.append("        ],")
        lines += [f"        key={_literal(list(key))},"] if key else []
        if expected is None:
            return "\n".join([*lines, "    )"])
        rows = [f"        {_literal(tuple(row))}," for row in expected]
        return "\n".join([*lines, "        batch=False,", "    )", "    assert run.final == [", *rows, "    ]"])

    def as_yaml(
        self, query: str, key: Sequence[str], expected: ResultRows | None, *, name: str = "", batch: bool = False
    ) -> str:
        """Return an entry for `tests` in a file tests/*.yml; batch: whether the batch answer is `expected` too."""
        words = {type(event): word for word, event in _EVENTS.items()}
        lines = [f"  - name: {json.dumps(name) if name else f'{query} over these batches'}", f"    query: {query}"]
        lines += [f"    key: {json.dumps(list(key))}", "    batches:"] if key else ["    batches:"]
        for step in self.steps:
            rows = {name: [_json(placed.row) for placed in held] for name, held in step.rows.items() if held}
            for at, (source, held) in enumerate(rows.items()):
                begin = f"      {' ' if at else '-'} {json.dumps(source)}:"
                line = f"{begin} [{', '.join(held)}]"
                lines += [line] if len(line) <= _WIDTH else [begin, *(f"          - {row}" for row in held)]
            lines += [f"      - {words[type(step.event)]}"] if step.event is not None else []
        if expected is not None:
            lines += [] if batch else ["    batch: false"]
            lines += ["    expect:" if len(expected) else "    expect: []"]
            lines += [f"      - {_json(tuple(row))}" for row in expected]
        else:
            lines.append("    expect_late: []")
        return "\n".join(lines)


def schedules(
    rows: SearchStrategy[Mapping[str, Sequence[Row]]], inlets: Mapping[str, Inlet], reorder: Reorder
) -> SearchStrategy[Schedule]:
    """Return a strategy for schedules of such rows in which none comes too late."""
    from hypothesis import strategies as st

    @st.composite
    def draw_schedule(draw: DrawFn) -> Schedule:
        parts = []
        for name, given in draw(rows).items():
            ordered, may_cut = _reorder(draw, inlets[name], list(map(Placed, count(), given)), reorder)
            cuts = draw(st.lists(st.sampled_from(may_cut), max_size=_MOST_BATCHES - 1, unique=True)) if may_cut else []
            edges = [0, *sorted(cuts), len(ordered)]
            parts.append((name, [ordered[first:last] for first, last in pairwise(edges)]))
        steps = []
        for number in range(max(len(batches) for _, batches in parts)):
            event = draw(st.sampled_from([None, None, *_EVENTS.values()]))
            step = Step({name: tuple(batches[number]) for name, batches in parts if number < len(batches)}, event)
            steps += [step] if step.size else []
        return Schedule(tuple(steps))

    return draw_schedule().filter(lambda schedule: schedule.size > 0)


def generate_rows(made: Mapping[str, Inlet]) -> SearchStrategy[dict[str, list[tuple[Any, ...]]]]:
    """Return a strategy for rows of each source."""
    from hypothesis import strategies as st

    drawn = {}
    for name, inlet in made.items():
        row = st.tuples(*[_values(field.dataType, nullable=field.nullable) for field in inlet.schema])
        drawn[name] = st.lists(row, min_size=1, max_size=_MOST_ROWS)
    return st.fixed_dictionaries(drawn)


def _values(kind: DataType, *, nullable: bool) -> SearchStrategy[Any]:
    """Return a strategy for values of a type; only NULL for types without values here."""
    from hypothesis import strategies as st
    from pyspark.sql import types as T

    if isinstance(kind, T.ArrayType):
        return st.lists(_values(kind.elementType, nullable=kind.containsNull), max_size=2)
    if isinstance(kind, T.MapType):
        values = _values(kind.valueType, nullable=kind.valueContainsNull)
        return st.dictionaries(_values(kind.keyType, nullable=False), values, max_size=2)
    if isinstance(kind, T.StructType):
        return st.fixed_dictionaries({field.name: _values(field.dataType, nullable=field.nullable) for field in kind})
    by_type: list[tuple[Any, tuple[Any, ...]]] = [
        (T.StringType, _TEXTS),
        (T.IntegralType, _NUMBERS),
        ((T.FloatType, T.DoubleType), (*map(float, _NUMBERS), 0.5, -2.25, float("nan"))),
        ((T.TimestampType, T.TimestampNTZType), _TIMES),
        (T.DateType, (DAY, DAY + timedelta(days=1), date(1970, 1, 1), date(2000, 2, 29))),
        (T.BooleanType, (True, False)),
        (T.BinaryType, (b"", b"a", b"b")),
    ]
    if isinstance(kind, T.DecimalType):
        by_type.append((T.DecimalType, tuple(map(Decimal, _NUMBERS if kind.precision - kind.scale > 2 else (0,)))))
    plain = next((values for types, values in by_type if isinstance(kind, types)), ())
    return st.sampled_from((*plain, None) if nullable or not plain else plain)


def _reorder(draw: DrawFn, inlet: Inlet, rows: list[Placed], reorder: Reorder) -> tuple[list[Placed], list[int]]:
    """Return the rows in a possible order, and the places where a batch may end without making a row late."""
    from hypothesis import strategies as st

    watermark = inlet.source.watermark
    if watermark is None:
        return (draw(st.permutations(rows)) if reorder == "all" and rows else rows), list(range(1, len(rows)))
    if inlet.raw or watermark.column not in inlet.schema.names:
        return rows, []  # Their event times are not known.
    at, delay = inlet.schema.names.index(watermark.column), timedelta(seconds=watermark.delay.seconds)
    if reorder != "none":
        held_up = [_later(_time(placed.row[at]), draw(st.sampled_from(_SHARES)) * delay) for placed in rows]
        rows = [rows[number] for number in sorted(range(len(rows)), key=held_up.__getitem__)]
    times = [_time(placed.row[at]) for placed in rows]
    return rows, [cut for cut in range(1, len(rows)) if _in_time(times[:cut], times[cut:], delay)]


def _in_time(before: Sequence[datetime], after: Sequence[datetime], delay: timedelta) -> bool:
    """Whether no row of `after` is late after those of `before`; one without a time, the oldest here, never is."""
    least = _later(max(before), -delay)
    return all(time > least or time == datetime.min for time in after)


def _later(time: datetime, by: timedelta) -> datetime:
    try:
        return time + by
    except OverflowError:
        return time


def _time(value: Any) -> datetime:
    if not isinstance(value, datetime):
        return datetime.min
    return (value - (value.utcoffset() or timedelta())).replace(tzinfo=None)


def _literal(value: Any) -> str:
    if isinstance(value, float) and value != value:
        return 'float("nan")'
    if isinstance(value, datetime | date | Decimal):
        return f'"{value}"'
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(name)}: {_literal(part)}' for name, part in value.items())}}}"
    return repr(value)


def _json(row: Row) -> str:
    return json.dumps(row if isinstance(row, str) else [json_value(value) for value in row], ensure_ascii=False)
