"""The aggregations of an analysed streaming plan as Python values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.plans.analysed import analysed_plan, has_event_time, name_of, sequence, timestamps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SESSION_KEY = "spark.sessionWindow"  # org.apache.spark.sql.catalyst.expressions.SessionWindow.marker
_TIMESTAMPS = ("timestamp", "timestamp_ntz")
_GROUPED_FUNCTIONS = {
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "applyInPandas of two streams",
    "FlatMapCoGroupsInArrow": "applyInArrow of two streams",
}


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """One aggregation over a stream.

    given: the timestamp columns of its rows, told only if not `bounded`.
    by: the keys; times: the timestamp columns of the sources that the keys are made of, told only if not `bounded`.
    watermarks: the columns that have a watermark below it; later: those that get one only above it.
    bounded: a key is the event-time column or a window of it, so that Spark knows when a group is finished.
    sessions_alone: session windows are the only keys. python: the names of aggregate functions written in Python.
    """

    by: tuple[str, ...]
    times: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    watermarks: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    bounded: bool
    sessions_alone: bool = False
    python: tuple[str, ...] = ()


def aggregations(frame: DataFrame) -> tuple[Aggregation, ...]:
    """Every aggregation over a stream in the analysed plan of `frame`, from the result downwards."""
    return tuple(_aggregations(analysed_plan(frame), ()))


def grouped_functions(frame: DataFrame) -> tuple[str, ...]:
    """The methods by which a Python function is given whole groups of a stream, without a state."""
    return tuple(_grouped_functions(analysed_plan(frame)))


def _aggregations(node: Any, later: tuple[str, ...]) -> Iterator[Aggregation]:
    if not node.isStreaming():
        return
    kind = node.nodeName()
    if kind == "EventTimeWatermark":
        later = (*later, str(node.eventTime().name()))
    elif kind == "Aggregate":
        keys = list(sequence(node.groupingExpressions()))
        bounded = any(map(has_event_time, keys))
        yield Aggregation(
            by=tuple(map(_words, keys)),
            times=() if bounded else tuple(dict.fromkeys(_times(keys, dict(_origins(node.child()))))),
            given=() if bounded else timestamps(sequence(node.child().output())),
            watermarks=tuple(dict.fromkeys(_watermarks(node.child()))),
            later=later,
            bounded=bounded,
            sessions_alone=bool(keys) and all(map(_is_session, keys)),
            python=tuple(name for each in sequence(node.aggregateExpressions()) for name in _python(each)),
        )
    for child in sequence(node.children()):
        yield from _aggregations(child, later)


def _grouped_functions(node: Any) -> Iterator[str]:
    if not node.isStreaming():
        return
    if (method := _GROUPED_FUNCTIONS.get(node.nodeName())) is not None:
        yield method
    for child in sequence(node.children()):
        yield from _grouped_functions(child)


def _watermarks(node: Any) -> Iterator[str]:
    """The columns of the watermarks in force; one put on later replaces those below it."""
    if node.nodeName() == "EventTimeWatermark":
        yield str(node.eventTime().name())
        return
    for child in sequence(node.children()):
        yield from _watermarks(child)


def _origins(node: Any) -> Iterator[tuple[int, Any]]:
    """What each computed column below is computed from, by the column's id."""
    for expression in sequence(node.expressions()):
        if expression.nodeName() == "Alias":
            yield int(expression.exprId().id()), expression.child()
    for child in sequence(node.children()):
        yield from _origins(child)


def _times(expressions: list[Any], origins: Mapping[int, Any]) -> Iterator[str]:
    for expression in expressions:
        for attribute in sequence(expression.references().toSeq()):
            origin = origins.get(int(attribute.exprId().id()))
            made_of = [] if origin is None else list(_times([origin], origins))
            if made_of:
                yield from made_of
            # A source may have made it of a text.
            elif attribute.dataType().typeName() in _TIMESTAMPS:
                yield str(attribute.name())


def _is_session(key: Any) -> bool:
    return key.nodeName() == "AttributeReference" and bool(key.metadata().contains(SESSION_KEY))


def _python(expression: Any) -> Iterator[str]:
    if expression.getClass().getSimpleName() == "PythonUDAF":
        yield str(expression.name())
    for child in sequence(expression.children()):
        yield from _python(child)


def _words(key: Any) -> str:
    if key.nodeName() == "Alias":
        key = key.child()
    return name_of(key)
