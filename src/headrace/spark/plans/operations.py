"""The operations on streams in a plan: aggregations, joins, and those that Spark, or we, refuse before the start.

Sources: Structured Streaming guide, "Unsupported Operations" and "Support matrix for joins in streaming queries"; what
Spark reads out of the watermarks and the condition of a join.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans import analysed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMESTAMPS = ("timestamp", "timestamp_ntz")
_GROUPED_FUNCTIONS = {
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "applyInPandas of two streams",
    "FlatMapCoGroupsInArrow": "applyInArrow of two streams",
}
Operation = Literal[
    "limit", "limit of sorted rows", "grouping sets", "set of rows", "deduplication by all columns", "join of streams"
]
_ORDER_KEPT = {"LocalLimit", "Project", "SubqueryAlias"}
_GROUPING_ID = "spark_grouping_id"
JoinKind = Literal["inner", "left outer", "right outer", "full outer", "left semi", "other"]
KINDS: tuple[JoinKind, ...] = ("inner", "left outer", "right outer", "full outer", "left semi")

_PROBE_MS = 10**13  # A watermark to solve the condition for; far from 0, as Spark computes in doubles.


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """One aggregation over a stream.

    given: the timestamp columns of its rows, only if not `bounded`.
    by: the keys; times: the timestamp columns of the sources that the keys are made of, only if not `bounded`.
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
    return tuple(_aggregations(analysed.analysed_plan(frame), ()))


def grouped_functions(frame: DataFrame) -> tuple[str, ...]:
    """The methods by which a Python function is given whole groups of a stream, without a state."""
    streaming = (node for node in analysed.nodes(analysed.analysed_plan(frame)) if node.isStreaming())
    names = (str(node.nodeName()) for node in streaming)
    return tuple(_GROUPED_FUNCTIONS[name] for name in names if name in _GROUPED_FUNCTIONS)


def _aggregations(node: Any, later: tuple[str, ...]) -> Iterator[Aggregation]:
    if not node.isStreaming():
        return
    kind = node.nodeName()
    if kind == "EventTimeWatermark":
        later = (*later, str(node.eventTime().name()))
    elif kind == "Aggregate":
        keys = list(analysed.sequence(node.groupingExpressions()))
        bounded = any(map(analysed.has_event_time, keys))
        yield Aggregation(
            by=tuple(analysed.name_of(key.child() if key.nodeName() == "Alias" else key) for key in keys),
            times=() if bounded else tuple(dict.fromkeys(_times(keys, dict(_origins(node.child()))))),
            given=() if bounded else analysed.timestamps(analysed.sequence(node.child().output())),
            watermarks=tuple(dict.fromkeys(_watermarks(node.child()))),
            later=later,
            bounded=bounded,
            sessions_alone=bool(keys) and all(map(analysed.is_session, keys)),
            python=tuple(
                str(part.name())
                for expression in analysed.sequence(node.aggregateExpressions())
                for part in analysed.nodes(expression)
                if part.getClass().getSimpleName() == "PythonUDAF"
            ),
        )
    for child in analysed.sequence(node.children()):
        yield from _aggregations(child, later)


def _watermarks(node: Any) -> Iterator[str]:
    """The columns of the watermarks in force; one put on later replaces those below it."""
    if node.nodeName() == "EventTimeWatermark":
        yield str(node.eventTime().name())
        return
    for child in analysed.sequence(node.children()):
        yield from _watermarks(child)


def _origins(node: Any) -> Iterator[tuple[int, Any]]:
    """What each computed column below is computed from, by the column's id."""
    for below in analysed.nodes(node):
        for expression in analysed.sequence(below.expressions()):
            if expression.nodeName() == "Alias":
                yield analysed.identity(expression), expression.child()


def _times(expressions: list[Any], origins: Mapping[int, Any]) -> Iterator[str]:
    for expression in expressions:
        for attribute in analysed.sequence(expression.references().toSeq()):
            origin = origins.get(analysed.identity(attribute))
            made_of = [] if origin is None else list(_times([origin], origins))
            if made_of:
                yield from made_of
            # A source may have made it of a text.
            elif attribute.dataType().typeName() in _TIMESTAMPS:
                yield str(attribute.name())


@dataclass(frozen=True, kw_only=True)
class JoinSide:
    """One side of a join of two streams; times are in milliseconds.

    sources: the names of the sources that feed it.
    delay: how late its rows may come, which is the longest delay of its watermarks; None: it has none.
    behind: how far behind the watermark its rows are still needed; None: nothing bounds them.
    direct: no operator below it holds rows back. placed: the column that Spark lets go of its rows by is the one with
        its watermark; False also where the condition compares that with a column of the other side's without one.
    """

    sources: tuple[str, ...]
    delay: int | None
    behind: int | None
    direct: bool = True
    placed: bool = True


@dataclass(frozen=True, kw_only=True)
class StreamJoin:
    """A join of two streams.

    windows: it is on event-time windows, whose end stands for the row's time. by_key: a column with a watermark is
    among those that have to be equal, and Spark lets go of both sides' rows by it. null_keys: the columns that have to
    be equal, in pairs, of which both may be NULL.
    """

    kind: JoinKind
    left: JoinSide
    right: JoinSide
    windows: bool = False
    by_key: bool = False
    null_keys: tuple[tuple[str, str], ...] = ()


def stream_joins(spark: SparkSession, optimised: Any) -> tuple[StreamJoin, ...]:
    """The joins of two streams in an optimised plan, the outermost first.

    The analysed plan would not do: Spark makes a WHERE part of a join's condition before it looks for bounds there.
    """
    return tuple(
        _stream_join(jvm_of(spark), node) for node in analysed.nodes(optimised) if analysed.joins_streams(node)
    )


def _stream_join(jvm: Any, join: Any) -> StreamJoin:
    kind = str(join.joinType().sql()).lower()
    sides = (join.left(), join.right())
    by_key = bool(jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper.isWatermarkInJoinKeys(join))
    event_times = [analysed.with_watermark(analysed.sequence(side.output())) for side in sides]
    keys = _has_watermarked_keys(jvm, join) if by_key else (True, True)
    left, right = (
        JoinSide(
            sources=analysed.source_names(side),
            delay=max(_delays(side), default=None),
            behind=0 if by_key else _rows_behind(jvm, join, side.outputSet(), other) if event_times[index] else None,
            direct=not any(
                analysed.joins_streams(node) or analysed.is_stateful(str(node.nodeName()))
                for node in analysed.nodes(side)
                if node.isStreaming()
            ),
            placed=keys[index] if by_key else _is_bounded_by(jvm, join, event_times[index], side, other),
        )
        for index, (side, other) in enumerate((sides, sides[::-1]))
    )
    windows = by_key and any(
        attribute.dataType().typeName() == "struct" for attribute_list in event_times for attribute in attribute_list
    )
    return StreamJoin(
        kind=next((known_kind for known_kind in KINDS if known_kind == kind), "other"),
        left=left,
        right=right,
        windows=windows,
        by_key=by_key,
        null_keys=tuple(_null_keys(jvm, join)),
    )


def _null_keys(jvm: Any, join: Any) -> Iterator[tuple[str, str]]:
    """The columns of the keys of which both sides may be NULL, where the condition does not say IS NOT NULL.

    Spark looks for the rows of the other side by the bytes of their keys, and so takes NULL for equal to NULL. It puts
    a filter in front of a join that keeps NULL out, but not where rows of both sides come out without a match, and not
    for the keys that it brings into one form, which are FLOAT and DOUBLE.
    """
    by_keys = getattr(jvm.org.apache.spark.sql.catalyst.planning, "ExtractEquiJoinKeys$").__getattr__("MODULE$")
    keys = by_keys.unapply(join)
    if keys.isEmpty():
        return
    # The condition's own parts, and what filters below keep out.
    holds = [by_keys.splitConjunctivePredicates(join.condition().get())]
    holds += [side.constraints().toSeq() for side in (join.left(), join.right())]
    parts = (part for parts in holds for part in analysed.sequence(parts) if part.nodeName() == "IsNotNull")
    given = [set(_columns(part)) for part in parts]
    for pair in zip(*map(analysed.sequence, (keys.get()._2(), keys.get()._3())), strict=True):
        left, right = map(_columns, pair)
        is_given = any(ids <= left.keys() or ids <= right.keys() for ids in given)
        if all(key.nullable() for key in pair) and not is_given:
            yield ", ".join(left.values()), ", ".join(right.values())


def _columns(expression: Any) -> dict[int, str]:
    """The columns of an expression: their ids and names."""
    columns = analysed.sequence(expression.references().toSeq())
    return {analysed.identity(column): str(column.name()) for column in columns}


def _has_watermarked_keys(jvm: Any, join: Any) -> tuple[bool, bool]:
    """Whether the columns that Spark lets go of rows by have a watermark: the first pair of equal ones where one has.

    As StreamingSymmetricHashJoinHelper.findJoinKeyOrdinalForWatermark picks it, a left column before a right one.
    """
    equi_join = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(join).get()
    pairs = [
        (analysed.has_event_time(left), analysed.has_event_time(right))
        for left, right in zip(analysed.sequence(equi_join._2()), analysed.sequence(equi_join._3()), strict=True)
    ]
    return next((pair for pair in pairs if pair[0]), next(pair for pair in pairs if any(pair)))


def _is_bounded_by(jvm: Any, join: Any, event_times: Sequence[Any], side: Any, other: Any) -> bool:
    """Whether the bound of `side` is one of its watermarked column, which Spark compares with it in any case."""
    if not event_times or _rows_behind(jvm, join, side.outputSet(), other) is None:
        return True
    own = jvm.org.apache.spark.sql.catalyst.expressions.AttributeSet.apply(event_times[0])
    return _rows_behind(jvm, join, own, other) is not None


def _rows_behind(jvm: Any, join: Any, attributes: Any, other: Any) -> int | None:
    """How far behind the watermark Spark keeps rows by `attributes`, by its own solution of the join's condition."""
    solved = state_watermark(jvm, join, attributes, other, _PROBE_MS)
    if solved is None:
        return None
    behind = _PROBE_MS - solved
    # Where the bound itself still matches, Spark's answer is a millisecond earlier.
    return behind - 1 if behind % 10 == 1 else behind


def state_watermark(jvm: Any, join: Any, attributes: Any, other: Any, watermark: int) -> int | None:
    """By when Spark lets go of rows by `attributes` of one side of a join, in ms; None: never."""
    solved = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper.getStateValueWatermark(
        attributes, other.outputSet(), join.condition(), jvm.scala.Option.apply(jvm.java.lang.Long(watermark))
    )
    return int(solved.get()) if solved.isDefined() else None


def _delays(side: Any) -> Iterator[int]:
    for node in analysed.nodes(side):
        if node.nodeName() == "EventTimeWatermark":
            yield from map(analysed.delay_of, analysed.with_watermark(analysed.sequence(node.output())))


def refusal(frame: DataFrame, mode: str, *, continuous: bool = False) -> Exception | None:
    """What Spark would raise when `frame` is started in the output mode `mode`; None: it would start."""
    sql = jvm_of(frame.sparkSession).org.apache.spark.sql
    output_mode = getattr(sql.streaming.OutputMode, mode.capitalize())()
    checker = sql.catalyst.analysis.UnsupportedOperationChecker
    check = checker.checkForContinuous if continuous else checker.checkForStreaming
    try:
        check(analysed.analysed_plan(frame), output_mode)
    except Exception as error:
        return error
    return None


def stream_operations(frame: DataFrame) -> tuple[Operation, ...]:
    """Which of them the analysed plan of `frame` has on streams, from the result downwards, each kind once."""
    operations = (_operation(node) for node in analysed.nodes(analysed.analysed_plan(frame)) if node.isStreaming())
    return tuple(dict.fromkeys(operation for operation in operations if operation is not None))


def _operation(node: Any) -> Operation | None:
    kind = str(node.nodeName())
    if kind == "GlobalLimit":
        return "limit of sorted rows" if _is_sorted(node) else "limit"
    if kind == "Aggregate" and any(_GROUPING_ID in str(key) for key in analysed.sequence(node.groupingExpressions())):
        return "grouping sets"
    if kind == "Distinct" or kind.startswith(("Except", "Intersect")):
        return "set of rows"
    if kind == "Deduplicate" and analysed.keeps_whole_rows(node):
        return "deduplication by all columns"
    return "join of streams" if analysed.joins_streams(node) else None


def _is_sorted(limit: Any) -> bool:
    """Whether the rows that are limited come out of a sort."""
    node = limit.child()
    while node.nodeName() in _ORDER_KEPT:
        node = node.child()
    return bool(node.nodeName() == "Sort")
