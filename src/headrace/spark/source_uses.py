"""A source that a query reads in several places of its plan: each place becomes a source of its own in Spark's eyes.

Spark keeps one place in its checkpoint for each name, and refuses to start a plan in which a name stands twice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.uses import use_name
from headrace.spark.plan_rewrite import frame_of, jvm_of, with_children
from headrace.spark.plans import analysed_plan, nodes, sequence, source_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def apart(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """`frame`, in whose plan no two sources have the same name.

    A source that counts its bad rows keeps its name, for Spark takes a count's name once in a plan; so does one whose
    files are taken away once they are read, for the other place may not have read them.
    """
    plan = analysed_plan(frame)
    names = Counter(source_names(plan)) if plan.isStreaming() else Counter[str]()
    if not any(count > 1 for count in names.values()):
        return frame
    if any(node.nodeName() == "CollectMetrics" or _takes_away(node) for node in nodes(plan)):
        return frame
    return frame_of(spark, _renamed(spark, plan, Counter()))


def _renamed(spark: SparkSession, plan: Any, seen: Counter[str]) -> Any:
    below = list(sequence(plan.children()))
    if below:
        again = [_renamed(spark, child, seen) for child in below]
        same = all(old.equals(new) for old, new in zip(below, again, strict=True))
        return plan if same else with_children(spark, plan, again)
    if not plan.isStreaming():
        return plan
    (name, *_) = source_names(plan) or ("",)
    seen[name] += 1
    if not name or seen[name] == 1:
        return plan
    named = jvm_of(spark).org.apache.spark.sql.catalyst.streaming.UserProvided(use_name(name, seen[name]))
    return plan.withSourceIdentifyingName(named)


def _takes_away(node: Any) -> bool:
    """Whether a node is a source of files that deletes or archives what it has read."""
    if node.nodeName() != "StreamingRelation":
        return False
    options = str(node.dataSource().options()).lower()
    return "cleansource -> archive" in options or "cleansource -> delete" in options
