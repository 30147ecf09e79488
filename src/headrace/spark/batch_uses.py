"""A source that a query reads in several places: in the batch plan, too, each place gets the rows of its own batches.

Spark lists new files, or asks for new offsets, once for each place, so that a row may come to one a batch later than to
the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.uses import use_name
from headrace.spark.plan_rewrite import MARK, renamed, scala_seq, with_children, with_parts
from headrace.spark.plans import analysed_plan, sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Reading = Callable[[str, str], DataFrame]


def apart(spark: SparkSession, plan: Any, read: Reading, uses: Collection[str]) -> Any:
    """`plan`, in which each further use of a source reads what `read(source, use)` gives, if `uses` holds its name."""
    return _apart(spark, plan, read, uses, Counter())


def _apart(spark: SparkSession, plan: Any, read: Reading, uses: Collection[str], seen: Counter[str]) -> Any:
    if plan.nodeName() == "SubqueryAlias" and (mark := str(plan.identifier().name())).startswith(MARK):
        name = mark.removeprefix(MARK)
        seen[name] += 1
        use = use_name(name, seen[name])
        return _other(spark, plan, read(name, use)) if use != name and use in uses else plan
    below = list(sequence(plan.children()))
    again = [_apart(spark, child, read, uses, seen) for child in below]
    if all(old.equals(new) for old, new in zip(below, again, strict=True)):
        return plan
    return with_children(spark, plan, again)


def _other(spark: SparkSession, mark: Any, frame: DataFrame) -> Any:
    """The rows of `frame` under the attributes of `mark`, as which the plan above knows them."""
    other = analysed_plan(frame)
    project = other.child()
    columns = [
        renamed(spark, given, wanted)
        for given, wanted in zip(sequence(project.projectList()), sequence(mark.output()), strict=True)
    ]
    same = with_parts(spark, project, {0: scala_seq(spark, columns)})
    return with_children(spark, other, [same])
