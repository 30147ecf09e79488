"""The event times of a running stream, observed at each watermark: how many are NULL, and which is the newest."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.contract import CHANGE_COLUMN
from headrace.spark.plans.analysed import analysed_plan, nodes, sequence
from headrace.spark.plans.plan_rewrite import column_of, frame_of, over, stream_tree
from headrace.spark.plans.source_uses import stream_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The metrics' names begin so, and end in the source's name in the plan; the columns are `nulls`, `oldest`, `newest`.
METRIC = "headrace_event_times_of_"
# The metric of change data: `newest`, in milliseconds, is when the source made the newest change.
SOURCE_TIME = "headrace_source_time"


def observe_event_times(frame: DataFrame) -> DataFrame:
    """Let each batch of `frame` observe the event times of every watermark that lies over one source.

    A count is put on when the query starts, and is not a part of the plan that checks and comparisons see. A query that
    joins two streams gets none: below such a join it changes which columns Spark keeps in the state, so that a
    checkpoint that is there would be refused (seen with Spark 4.2 as an incompatible state schema).
    """
    plan = analysed_plan(frame)
    if not any(node.nodeName() == "EventTimeWatermark" for node in nodes(plan)):
        return frame
    if any(map(_joins_streams, nodes(plan))):
        return frame
    return frame_of(frame.sparkSession, _observe(frame.sparkSession, plan, Counter()))


def observe_source_times(frame: DataFrame) -> DataFrame:
    """Let each batch of change data observe when the source made the newest of its changes."""
    from pyspark.sql import functions as F

    if CHANGE_COLUMN not in frame.columns:
        return frame
    return frame.observe(SOURCE_TIME, F.max(F.unix_millis(F.col(CHANGE_COLUMN)["source_time"])).alias("newest"))


def _joins_streams(node: Any) -> bool:
    return str(node.nodeName()) == "Join" and all(child.isStreaming() for child in sequence(node.children()))


def _observe(spark: SparkSession, plan: Any, seen: Counter[str]) -> Any:
    from pyspark.sql import functions as F

    node = over(spark, plan, [_observe(spark, child, seen) for child in sequence(plan.children())])
    if plan.nodeName() != "EventTimeWatermark" or plan.eventTime().dataType().typeName() != "timestamp":
        return node
    names = {stream_name(leaf.plan) for leaf in stream_tree(plan).walk() if leaf.from_source and not leaf.below}
    name = names.pop() if len(names) == 1 else None
    seen[name or ""] += 1
    # Spark takes a metric's name once; a second place of the source has the same rows.
    if name is None or seen[name] > 1:
        return node
    time = column_of(spark, plan.eventTime())
    oldest, newest = (take(F.unix_millis(time)) for take in (F.min, F.max))
    counts = F.count_if(time.isNull()).alias("nulls"), oldest.alias("oldest"), newest.alias("newest")
    return analysed_plan(frame_of(spark, node).observe(METRIC + name, *counts))
