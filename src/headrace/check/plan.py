"""Spark's analysed plan of a query as a Python value: what keeps state, by what, and what is not deterministic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WATERMARK_KEY = "spark.watermarkDelayMs"  # org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.delayKey
PROCESSOR = "TransformWithStateInPySpark"


@dataclass(frozen=True, kw_only=True)
class StatefulOperator:
    """One operator that keeps state. `by` are its keys as Spark writes them; `bounded`: a watermark lets state go."""

    kind: str
    by: tuple[str, ...]
    bounded: bool


@dataclass(frozen=True, kw_only=True)
class Processor:
    """A transformWithState, of which Spark checks little before start.

    mode: that of its results, `Append` or `Update`; time: `NoTime`, `ProcessingTime` or `EventTime`.
    """

    mode: str
    time: str
    has_watermark: bool
    begins_with_stream: bool


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """What the checks ask of a plan.

    sources: the names of the sources in the plan's order, which is that of Spark's progress.
    indeterminate: the expressions that may answer otherwise when asked again.
    by_clock: some state has timeouts or timers by processing time, so that Spark makes batches without data.
    """

    streaming: bool
    sources: tuple[str, ...] = ()
    stateful: tuple[StatefulOperator, ...]
    indeterminate: tuple[str, ...]
    processors: tuple[Processor, ...] = ()
    by_clock: bool = False

    @property
    def deterministic(self) -> bool:
        """Whether the same input always gives the same result."""
        return not self.indeterminate


def plan_facts(frame: DataFrame) -> PlanFacts:
    """Read the facts off the analysed plan of `frame`, without running anything."""
    plan = analysed_plan(frame)
    nodes = list(_walk(plan))
    return PlanFacts(
        streaming=bool(plan.isStreaming()),
        sources=tuple(re.findall(r'StreamingRelation.*\bname="(\w+)"', plan.treeString())),
        stateful=tuple(operator for node in nodes for operator in _stateful(node)),
        processors=tuple(_processor(node) for node in nodes if node.nodeName() == PROCESSOR and node.isStreaming()),
        by_clock=any(map(_by_clock, nodes)),
        indeterminate=tuple(dict.fromkeys(text for node in nodes for text in _indeterminate(node))),
    )


def analysed_plan(frame: DataFrame) -> Any:
    """The JVM's analysed logical plan of `frame`."""
    return frame._jdf.queryExecution().analyzed()


def sequence(scala: Any) -> Iterator[Any]:
    """The elements of a Scala Seq."""
    for index in range(scala.size()):
        yield scala.apply(index)


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in sequence(node.children()):
        yield from _walk(child)


def _stateful(node: Any) -> Iterator[StatefulOperator]:
    if not node.isStreaming():
        return
    kind = node.nodeName()
    if kind == "Aggregate":
        groups = list(sequence(node.groupingExpressions()))
        yield StatefulOperator(
            kind="aggregation", by=tuple(_name(each) for each in groups), bounded=any(map(_has_watermark, groups))
        )
    elif kind == "Deduplicate":
        keys = list(sequence(node.keys()))
        yield StatefulOperator(
            kind="deduplication", by=tuple(_name(each) for each in keys), bounded=any(map(_has_watermark, keys))
        )
    elif kind == "Distinct":
        keys = list(sequence(node.output()))
        yield StatefulOperator(
            kind="deduplication", by=tuple(_name(each) for each in keys), bounded=any(map(_has_watermark, keys))
        )
    elif kind == "DeduplicateWithinWatermark":
        yield StatefulOperator(
            kind="deduplication", by=tuple(_name(each) for each in sequence(node.keys())), bounded=True
        )
    elif kind == "Join" and node.left().isStreaming() and node.right().isStreaming():
        bounded = all(any(map(_has_watermark, sequence(side.output()))) for side in (node.left(), node.right()))
        yield StatefulOperator(kind="join of two streams", by=(), bounded=bounded)
    elif "GroupsWithState" in kind or "TransformWithState" in kind or kind == "FlatMapGroupsInPandasWithState":
        yield StatefulOperator(kind="arbitrary state", by=(), bounded=True)


def _by_clock(node: Any) -> bool:
    if node.nodeName() == PROCESSOR:
        return str(node.timeMode()) == "ProcessingTime"
    return node.nodeName() == "FlatMapGroupsInPandasWithState" and str(node.timeout()) == "ProcessingTimeTimeout"


def _processor(node: Any) -> Processor:
    return Processor(
        mode=str(node.outputMode()),
        time=str(node.timeMode()),
        has_watermark=any(map(_has_watermark, sequence(node.left().output()))),
        begins_with_stream=bool(node.hasInitialState() and node.right().isStreaming()),
    )


def _has_watermark(expression: Any) -> bool:
    return any(attribute.metadata().contains(WATERMARK_KEY) for attribute in _elements(expression.references().toSeq()))


def _indeterminate(node: Any) -> Iterator[str]:
    for expression in sequence(node.expressions()):
        if not expression.deterministic():
            yield from _innermost(expression)


def _innermost(expression: Any) -> Iterator[str]:
    """The smallest sub-expressions that are not deterministic themselves."""
    below = [child for child in sequence(expression.children()) if not child.deterministic()]
    if not below:
        yield str(expression.sql()) if expression.resolved() else str(expression)
    for child in below:
        yield from _innermost(child)


def _elements(scala: Any) -> Iterator[Any]:
    return sequence(scala)


def _name(expression: Any) -> str:
    name = getattr(expression, "name", None)
    try:
        return str(name()) if name is not None else str(expression)
    except Exception:
        return str(expression)
