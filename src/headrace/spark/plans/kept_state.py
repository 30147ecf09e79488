"""What each stateful operator of a streaming plan keeps and reads: by which keys and time, under which delay.

Joins of two streams are in `operations`. Source: Spark's StateStoreSaveExec, SessionWindowStateStoreSaveExec,
StreamingDeduplicateExec, StreamingDeduplicateWithinWatermarkExec and FlatMapGroupsWithStateExec.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans import analysed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

StateKind = Literal[
    "aggregation", "session windows", "deduplication", "deduplication within the watermark", "join", "arbitrary state"
]
Timeout = Literal["none", "clock", "event time"]
WINDOW_KEY = "spark.timeWindow"  # org.apache.spark.sql.catalyst.expressions.TimeWindow.marker
_DAYS_OF_A_MONTH = 31
_TIMEOUTS: dict[str, Timeout] = {
    "EventTimeTimeout": "event time",
    "EventTime": "event time",
    "ProcessingTimeTimeout": "clock",
    "ProcessingTime": "clock",
}
_WHOLE_ROWS = ("Deduplicate", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState")


@dataclass(frozen=True, kw_only=True)
class KeptState:
    """One stateful operator; times are in milliseconds.

    by: its keys in words.
    delay: how late rows may come, by the watermark of the column that Spark compares with it.
    window: the length of the window that is a key, or of the gap that ends a session; None: no window, or a gap that
        each row gives. timeout: what ends the state of a function of the user's.
    join: which of the plan's joins of two streams it is, the outermost first.
    behind: another stateful operator lies below it.
    """

    kind: StateKind
    by: tuple[str, ...] = ()
    delay: int | None = None
    window: int | None = None
    timeout: Timeout = "none"
    join: int | None = None
    behind: bool = False


def kept_states(frame: DataFrame) -> tuple[KeptState, ...]:
    """The stateful operators of the analysed plan of `frame`, in the order in which rows come to them."""
    plan = analysed.analysed_plan(frame)
    return tuple(_states(plan, dict(_windows(frame.sparkSession, plan)), count()))


def _states(node: Any, lengths: dict[int, int], joins: Iterator[int]) -> Iterator[KeptState]:
    if not node.isStreaming():
        return
    # Counted on the way down, as `operations` counts them.
    number = next(joins) if analysed.joins_streams(node) else None
    below = [state for child in analysed.sequence(node.children()) for state in _states(child, lengths, joins)]
    yield from below
    kind, behind = str(node.nodeName()), bool(below)
    if number is not None:
        yield KeptState(kind="join", by=tuple(_join_keys(node)), join=number, behind=behind)
    elif kind == "Aggregate":
        keys = list(analysed.sequence(node.groupingExpressions()))
        session = any(map(analysed.is_session, keys))
        yield _state_by_keys("session windows" if session else "aggregation", keys, lengths, behind)
    elif kind in ("Deduplicate", "Distinct"):
        keys = list(analysed.sequence(node.keys() if kind == "Deduplicate" else node.output()))
        yield _state_by_keys("deduplication", keys, lengths, behind)
    elif kind == "DeduplicateWithinWatermark":
        keys, times = list(analysed.sequence(node.keys())), analysed.sequence(node.child().output())
        yield _state_by("deduplication within the watermark", keys, analysed.with_watermark(times), behind)
    elif any(name in kind for name in analysed.ARBITRARY_STATE):
        yield _arbitrary_state(node, kind, behind)


def _state_by(kind: StateKind, keys: list[Any], times: list[Any], behind: bool, **further: Any) -> KeptState:
    """A state by `keys`, which is held against the first of `times`, if there is one."""
    return KeptState(
        kind=kind,
        by=tuple(map(analysed.name_of, keys)),
        delay=analysed.delay_of(times[0]) if times else None,
        behind=behind,
        **further,
    )


def _state_by_keys(kind: StateKind, keys: list[Any], lengths: dict[int, int], behind: bool) -> KeptState:
    windows = (lengths.get(analysed.identity(key)) for key in keys if analysed.is_attribute(key))
    window = next((length for length in windows if length is not None), None)
    return _state_by(kind, keys, list(filter(analysed.has_event_time, keys)), behind, window=window)


def _arbitrary_state(node: Any, kind: str, behind: bool) -> KeptState:
    processor = kind == analysed.PROCESSOR
    timeout = str(node.timeMode() if processor or "TransformWithState" in kind else node.timeout())
    source = node.left() if processor else node.children().head()
    # Of a JVM object each name seems to be a method; a processor in Python knows only how many columns it groups by.
    columns = list(analysed.sequence(source.output()))
    number = int(node.groupingAttributesLen()) if processor else 0
    keys = columns[:number] if processor else list(analysed.sequence(node.groupingAttributes()))
    times = analysed.with_watermark(columns)
    return _state_by("arbitrary state", keys, times, behind, timeout=_TIMEOUTS.get(timeout, "none"))


def _join_keys(join: Any) -> Iterator[str]:
    """The columns that a join equates, one of each side."""
    condition = join.condition()
    for part in _conjuncts(condition.get()) if condition.isDefined() else ():
        if part.nodeName() == "EqualTo":
            sides = [side for side in (part.left(), part.right()) if analysed.is_attribute(side)]
            if len(sides) == 2:
                one, other = map(analysed.name_of, sides)
                yield one if one == other else f"{one} = {other}"


def _conjuncts(condition: Any) -> Iterator[Any]:
    if condition.nodeName() == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _windows(spark: SparkSession, plan: Any) -> Iterator[tuple[int, int]]:
    """The length of each window of time, or the gap of each session window, by the identity of its column."""
    for node in analysed.nodes(plan):
        kind = str(node.nodeName())
        if kind == "Project":
            for column in analysed.sequence(node.projectList()):
                if column.nodeName() == "Alias" and column.child().nodeName() == "CreateNamedStruct":
                    yield from _window(spark, column.toAttribute(), column.child())
        elif kind == "Expand":
            first = node.projections().apply(0)
            for attribute, value in zip(analysed.sequence(node.output()), analysed.sequence(first), strict=True):
                if value.nodeName() == "CreateNamedStruct":
                    yield from _window(spark, attribute, value)


def _window(spark: SparkSession, attribute: Any, struct: Any) -> Iterator[tuple[int, int]]:
    """A window is the struct of its start, and its end, which is something plus its length."""
    if not (analysed.has_mark(attribute, WINDOW_KEY) or analysed.is_session(attribute)):
        return
    end = struct.children().apply(3)
    while end.nodeName() not in ("Add", "TimestampAddInterval", "TimeAdd") and end.children().size() == 1:
        end = end.children().apply(0)
    if end.children().size() != 2 or not end.right().foldable():
        return
    length = end.right().eval(None)
    if isinstance(length, int):
        yield analysed.identity(attribute), length // 1000
    else:
        jvm = jvm_of(spark)
        unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        intervals = jvm.org.apache.spark.sql.catalyst.util.IntervalUtils
        yield analysed.identity(attribute), int(intervals.getDuration(length, unit, _DAYS_OF_A_MONTH))


@dataclass(frozen=True, kw_only=True)
class StatefulInput:
    """One input of an operator with state. `columns` are the event-time columns among which Spark looks for the one."""

    operator: str
    columns: tuple[str, ...]


def stateful_inputs(optimised: Any, *, complete: bool) -> Iterator[StatefulInput]:
    """The inputs of all operators with state of an optimised plan.

    complete: the query's mode is complete, in which an aggregation keeps every group and Spark looks for no column.
    """
    for node in analysed.nodes(optimised):
        if node.isStreaming():
            for columns in _read(node, complete=complete):
                names = {analysed.identity(column): str(column.name()) for column in columns}
                yield StatefulInput(
                    operator="a join of two streams" if analysed.joins_streams(node) else str(node.nodeName()),
                    columns=tuple(names.values()),
                )


def _read(node: Any, *, complete: bool) -> Iterator[list[Any]]:
    kind = str(node.nodeName())
    if analysed.joins_streams(node):
        yield from (analysed.with_watermark(analysed.sequence(side.output())) for side in (node.left(), node.right()))
    elif kind == "Aggregate" and not complete:
        yield analysed.with_watermark(filter(analysed.is_attribute, analysed.sequence(node.groupingExpressions())))
    elif any(name in kind for name in _WHOLE_ROWS):
        yield analysed.with_watermark(analysed.sequence(node.children().head().output()))
