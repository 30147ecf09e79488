"""The joins of two streams in a plan, with what Spark reads out of their watermarks and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.analysed import (
    WATERMARK_KEY,
    has_event_time,
    joins_streams,
    marked,
    nodes,
    sequence,
    source_names,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JoinKind = Literal["inner", "left outer", "right outer", "full outer", "left semi", "other"]
KINDS: tuple[JoinKind, ...] = ("inner", "left outer", "right outer", "full outer", "left semi")

_PROBE_MS = 10**13  # A watermark to solve the condition for; far from 0, as Spark computes in doubles.
_STATEFUL = ("Aggregate", "Distinct", "Deduplicate", "GroupsWithState", "TransformWithState", "InPandasWithState")


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
    among those that have to be equal, and Spark lets go of both sides' rows by it.
    """

    kind: JoinKind
    left: JoinSide
    right: JoinSide
    windows: bool = False
    by_key: bool = False


def stream_joins(spark: SparkSession, optimised: Any) -> tuple[StreamJoin, ...]:
    """The joins of two streams in an optimised plan, the outermost first.

    The analysed plan would not do: Spark makes a WHERE part of a join's condition before it looks for bounds there.
    """
    return tuple(_stream_join(jvm_of(spark), node) for node in nodes(optimised) if joins_streams(node))


def _stream_join(jvm: Any, join: Any) -> StreamJoin:
    kind = str(join.joinType().sql()).lower()
    sides = (join.left(), join.right())
    by_key = bool(jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper.isWatermarkInJoinKeys(join))
    event_times = [marked(sequence(side.output())) for side in sides]
    keys = _marked_keys(jvm, join) if by_key else (True, True)
    left, right = (
        JoinSide(
            sources=source_names(side),
            delay=max(_delays(side), default=None),
            behind=0 if by_key else _behind(jvm, join, side.outputSet(), other) if event_times[index] else None,
            direct=not any(_holds_back(node) for node in nodes(side)),
            placed=keys[index] if by_key else _is_bounded_by(jvm, join, event_times[index], side, other),
        )
        for index, (side, other) in enumerate((sides, sides[::-1]))
    )
    windows = by_key and any(attribute.dataType().typeName() == "struct" for each in event_times for attribute in each)
    return StreamJoin(
        kind=next((each for each in KINDS if each == kind), "other"),
        left=left,
        right=right,
        windows=windows,
        by_key=by_key,
    )


def _marked_keys(jvm: Any, join: Any) -> tuple[bool, bool]:
    """Whether the columns that Spark lets go of rows by have a watermark: the first pair of equal ones where one has.

    As StreamingSymmetricHashJoinHelper.findJoinKeyOrdinalForWatermark picks it, a left column before a right one.
    """
    found = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(join).get()
    pairs = [
        (has_event_time(left), has_event_time(right))
        for left, right in zip(sequence(found._2()), sequence(found._3()), strict=True)
    ]
    return next((pair for pair in pairs if pair[0]), next(pair for pair in pairs if any(pair)))


def _is_bounded_by(jvm: Any, join: Any, event_times: Sequence[Any], side: Any, other: Any) -> bool:
    """Whether the bound of `side` is one of its watermarked column, which Spark compares with it in any case."""
    if not event_times or _behind(jvm, join, side.outputSet(), other) is None:
        return True
    own = jvm.org.apache.spark.sql.catalyst.expressions.AttributeSet.apply(event_times[0])
    return _behind(jvm, join, own, other) is not None


def _behind(jvm: Any, join: Any, attributes: Any, other: Any) -> int | None:
    """How far behind the watermark Spark keeps rows by `attributes`, by its own solution of the join's condition."""
    solved = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper.getStateValueWatermark(
        attributes, other.outputSet(), join.condition(), jvm.scala.Option.apply(jvm.java.lang.Long(_PROBE_MS))
    )
    if not solved.isDefined():
        return None
    behind = _PROBE_MS - int(solved.get())
    # Where the bound itself still matches, Spark's answer is a millisecond earlier.
    return behind - 1 if behind % 10 == 1 else behind


def _delays(side: Any) -> list[int]:
    found = []
    for node in nodes(side):
        if node.nodeName() == "EventTimeWatermark":
            found += [int(attribute.metadata().getLong(WATERMARK_KEY)) for attribute in marked(sequence(node.output()))]
    return found


def _holds_back(node: Any) -> bool:
    return bool(node.isStreaming()) and (joins_streams(node) or any(each in str(node.nodeName()) for each in _STATEFUL))
