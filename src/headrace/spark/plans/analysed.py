"""Spark's analysed plan of a query as a Python value: what keeps state, by what, and what is not deterministic."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from headrace.spark.jvm.gateway import execution_of, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WATERMARK_KEY = "spark.watermarkDelayMs"  # org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.delayKey
SESSION_KEY = "spark.sessionWindow"  # org.apache.spark.sql.catalyst.expressions.SessionWindow.marker
PROCESSOR = "TransformWithStateInPySpark"
_STATEFUL = {"Aggregate", "Deduplicate", "Distinct", "DeduplicateWithinWatermark"}
ARBITRARY_STATE = ("GroupsWithState", "TransformWithState", "GroupsInPandasWithState")
_CLOCKS = {"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentBatchTimestamp"}
# How TreeNode.toJSON names the class of a node.
_CLASS = re.compile(r'"class":"[^"]*?(\w+)"')
# What a plan's text holds of one start: identifiers of watermarks and addresses of objects.
_PASSING = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|@[0-9a-f]+\b"


@dataclass(frozen=True, kw_only=True)
class EndlessDeduplication:
    """A deduplication of which no watermark lets state go.

    `by` are its keys as Spark writes them; marked, times: the columns of its rows that have a watermark, and those that
    are timestamps.
    """

    by: tuple[str, ...]
    marked: tuple[str, ...]
    times: tuple[str, ...]


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
    watermarks: how many watermarks are put on.
    watermarked: the names of the sources that have a watermark.
    indeterminate: the expressions that may answer otherwise when asked again.
    stateful: some operator keeps state, joins left out. endless: those of its deduplications that keep it for ever.
    by_clock: some state has timeouts or timers by processing time, so that Spark makes batches without data.
    joins: two streams are joined, each side of which is kept.
    """

    streaming: bool
    sources: tuple[str, ...] = ()
    watermarks: int = 0
    watermarked: tuple[str, ...] = ()
    stateful: bool = False
    endless: tuple[EndlessDeduplication, ...] = ()
    indeterminate: tuple[str, ...]
    processors: tuple[Processor, ...] = ()
    by_clock: bool = False
    joins: bool = False

    @property
    def keeps_state(self) -> bool:
        """Whether something is kept from batch to batch."""
        return self.stateful or self.joins

    @property
    def deterministic(self) -> bool:
        """Whether the same input always gives the same result."""
        return not self.indeterminate


def plan_facts(frame: DataFrame) -> PlanFacts:
    """Read the facts off the analysed plan of `frame`, without running anything."""
    plan = analysed_plan(frame)
    all_nodes = list(nodes(plan))
    marks = [node for node in all_nodes if node.nodeName() == "EventTimeWatermark"]
    indeterminate = (text for node in all_nodes for part in sequence(node.expressions()) for text in _innermost(part))
    return PlanFacts(
        streaming=bool(plan.isStreaming()),
        sources=source_names(plan),
        watermarks=len(marks),
        watermarked=tuple(dict.fromkeys(name for mark in marks for name in source_names(mark))),
        stateful=any(is_stateful(str(node.nodeName())) for node in all_nodes if node.isStreaming()),
        endless=tuple(operator for node in all_nodes for operator in _endless_deduplications(node)),
        processors=tuple(_processor(node) for node in all_nodes if node.nodeName() == PROCESSOR and node.isStreaming()),
        by_clock=any(map(_is_by_clock, all_nodes)),
        joins=any(map(joins_streams, all_nodes)),
        indeterminate=tuple(dict.fromkeys([*indeterminate, *_clock_reads(jvm_of(frame.sparkSession), plan)])),
    )


def plan_text(frame: DataFrame) -> str:
    """The analysed plan of `frame` as this version of Spark writes it, without what differs from start to start."""
    return re.sub(_PASSING, "", str(analysed_plan(frame).canonicalized().treeString()))


def parse_text(spark: SparkSession, sql: str) -> str:
    """A SELECT as Spark's parser reads it: without comments, layout and the case of keywords; nothing is looked up."""
    plan = java_session(spark).sessionState().sqlParser().parsePlan(sql)
    return re.sub(r"#\d+L?", "", str(plan.treeString()))


def analysed_plan(frame: DataFrame) -> Any:
    """The JVM's analysed logical plan of `frame`."""
    return execution_of(frame).analyzed()


def sequence(scala: Any) -> Iterator[Any]:
    """The elements of a Scala Seq."""
    for index in range(scala.size()):
        yield scala.apply(index)


def identity(attribute: Any) -> int:
    """Return the number by which Spark knows an attribute of a plan."""
    return int(attribute.exprId().id())


def nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan or an expression, from the result downwards."""
    yield plan
    for child in sequence(plan.children()):
        yield from nodes(child)


def optimised_plan(frame: DataFrame) -> Any:
    """The JVM's optimised logical plan of `frame`, in which a WHERE is part of a join and unread columns are gone."""
    return java_session(frame.sparkSession).sessionState().optimizer().execute(analysed_plan(frame))


def joins_streams(node: Any) -> bool:
    """Whether a node joins two streams."""
    return bool(node.nodeName() == "Join" and node.left().isStreaming() and node.right().isStreaming())


def keeps_whole_rows(deduplication: Any) -> bool:
    """Whether a deduplication is by all columns, none of which lets state go, as `distinct` is."""
    keys, columns = list(sequence(deduplication.keys())), list(sequence(deduplication.child().output()))
    return not with_watermark(keys) and set(map(identity, columns)) <= set(map(identity, keys))


def with_watermark(attributes: Iterable[Any]) -> list[Any]:
    """Those of `attributes` that have a watermark."""
    return [attribute for attribute in attributes if attribute.metadata().contains(WATERMARK_KEY)]


def may_hold(plan: Any, names: Iterable[str]) -> bool:
    """Whether a class of one of these names stands in a plan; one question to the JVM, where a walk is hundreds."""
    from py4j.protocol import Py4JJavaError

    try:
        held = frozenset(_CLASS.findall(plan.toJSON()))
    except Py4JJavaError:  # Some value in the plan has no form in JSON.
        return True
    return not held.isdisjoint(names)


def clock_expressions(frame: DataFrame, plan: Any) -> tuple[str, ...]:
    """The expressions of a plan of this frame's session that ask the clock."""
    return tuple(dict.fromkeys(clocks(plan))) if asks_the_clock(jvm_of(frame.sparkSession), plan) else ()


def clocks(plan: Any) -> Iterator[str]:
    """The expressions of a plan that ask the clock."""
    return map(str, _of_classes(plan, _CLOCKS))


def _of_classes(plan: Any, names: Collection[str]) -> Iterator[Any]:
    for node in nodes(plan):
        for expression in sequence(node.expressions()):
            yield from (part for part in nodes(expression) if part.getClass().getSimpleName() in names)


def source_names(plan: Any) -> tuple[str, ...]:
    """The names of the sources below a plan's node, in the plan's order."""
    return tuple(re.findall(r'StreamingRelation.*\bname="(\w+)"', plan.treeString()))


def is_stateful(name: str) -> bool:
    """Whether a node of this name keeps state over a stream, joins left out."""
    return name in _STATEFUL or any(kind in name for kind in ARBITRARY_STATE)


def _endless_deduplications(node: Any) -> Iterator[EndlessDeduplication]:
    kind = str(node.nodeName())
    if kind not in ("Deduplicate", "Distinct") or not node.isStreaming():
        return
    keys = list(sequence(node.keys() if kind == "Deduplicate" else node.output()))
    if not any(map(_has_watermark, keys)):
        columns = list(sequence(node.child().output()))
        with_watermark = tuple(str(column.name()) for column in columns if _has_watermark(column))
        yield EndlessDeduplication(by=tuple(map(name_of, keys)), marked=with_watermark, times=timestamps(columns))


def delay_of(attribute: Any) -> int:
    """The delay of a column's watermark, in ms."""
    return int(attribute.metadata().getLong(WATERMARK_KEY))


def timestamps(columns: Iterable[Any]) -> tuple[str, ...]:
    return tuple(str(column.name()) for column in columns if str(column.dataType().typeName()) == "timestamp")


def has_event_time(key: Any) -> bool:
    """Whether a key is itself an event-time column or a window of one: Spark looks into no expression."""
    return has_mark(key, WATERMARK_KEY)


def is_session(key: Any) -> bool:
    """Whether a key is a session window."""
    return has_mark(key, SESSION_KEY)


def has_mark(key: Any, mark: str) -> bool:
    """Whether a key is a column as it stands that Spark has marked so."""
    return is_attribute(key) and bool(key.metadata().contains(mark))


def is_attribute(expression: Any) -> bool:
    """Whether an expression is a column as it stands."""
    return bool(expression.nodeName() == "AttributeReference")


def _is_by_clock(node: Any) -> bool:
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


def asks_the_clock(jvm: Any, plan: Any) -> bool:
    """Whether a plan has an expression like current_timestamp; one call, where to look at each would be many."""
    return bool(plan.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()))


def _clock_reads(jvm: Any, plan: Any) -> Iterator[str]:
    """The expressions that Spark computes when it plans a batch, so that a batch that comes again gets another value.

    `current_timestamp` and the like get the batch's own time, which the checkpoint keeps. Source:
    MicroBatchExecution.runBatch.
    """
    if asks_the_clock(jvm, plan):
        yield from map(in_words, _of_classes(plan, ("Now", "CurrentTime")))


def _has_watermark(expression: Any) -> bool:
    return bool(with_watermark(sequence(expression.references().toSeq())))


def _innermost(expression: Any) -> Iterator[str]:
    """The smallest parts of an expression, or itself, that are not deterministic."""
    # What parses JSON for connectors gives the same row for the same text; see connectors/values/json_rows.py.
    if expression.deterministic() or str(expression.toString()).startswith(("invoke(Json", "invoke(Debezium")):
        return
    below = [child for child in sequence(expression.children()) if not child.deterministic()]
    yield from chain.from_iterable(map(_innermost, below)) if below else [in_words(expression)]


def name_of(expression: Any) -> str:
    """A key in words: its column's name, or the expression as SQL, without the names of its inputs."""
    is_named = expression.nodeName() in ("AttributeReference", "Alias")
    return str(expression.name()) if is_named else in_words(expression)


def in_words(expression: Any) -> str:
    """An expression as SQL has it, without the names of its inputs."""
    if not expression.resolved():
        return str(expression)
    text = str(expression.sql())
    for attribute in sequence(expression.references().toSeq()):
        text = text.replace(str(attribute.sql()), str(attribute.name()))
    return text
