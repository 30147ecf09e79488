"""What is asked of a planned query: its text, whether it reads all, metrics observed, how its rows are spread.

PySpark's Observation would be the public way. But where the optimiser leaves out the part of a plan that is observed,
as below an empty input, its `get` ends with an AssertionError of the JVM (PythonSQLUtils.toPyRow, seen with PySpark
4.2.0); here that means that no row came by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.spark.jvm.gateway import execution_of
from headrace.spark.plans.analysed import sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


# The readers that leave rows out by a filter that is pushed down to them; of these two it can be switched off.
_FILTERING = ("parquet", "orc", "avro", "xml")
_BY_SETTING = ("csv", "json")
# What these have computed stays until the batch is done.
_KEPT = ("ShuffleExchangeExec", "BroadcastExchangeExec")


def plan_text(query: StreamingQuery) -> str:
    """The logical and the physical plans; PySpark's own `explain` prints them, to the output of the whole process."""
    return str(query._jsq.explainInternal(True))


def reads_all(query: StreamingQuery) -> bool:
    """Whether the last batch's plan reads each row and file of its sources: no filter is pushed down to them.

    Where it does not, Spark's count of what was read is less than what the batch took.
    """
    from py4j.protocol import Py4JError

    try:
        return not any(_may_filter(scan) for scan, _ in _scans(_executed_plan(query)))
    except Py4JError:
        return True  # It has ended meanwhile, or runs by another engine.


def reads_again(query: StreamingQuery) -> bool | None:
    """Whether the last batch's sources are read again when its rows are computed again.

    What a shuffle has written stays, so that a source below one is read once. None: one is read again, another is not,
    or it is not known.
    """
    from py4j.protocol import Py4JError

    try:
        kinds = {not is_shuffled for _, is_shuffled in _scans(_executed_plan(query))}
    except Py4JError:
        return None
    return kinds.pop() if len(kinds) == 1 else None


def _executed_plan(query: StreamingQuery) -> Any:
    jsq: Any = query._jsq
    return jsq.streamingQuery().lastExecution().executedPlan()


def _scans(plan: Any, *, is_shuffled: bool = False) -> Iterator[tuple[Any, bool]]:
    """The scans of streams in a physical plan, each with whether its rows come through a shuffle or a broadcast.

    Source: StreamSourceAwareSparkPlan; AdaptiveSparkPlanExec and QueryStageExec, which hide what they run.
    """
    from py4j.protocol import Py4JError

    name = str(plan.getClass().getSimpleName())
    if name == "AdaptiveSparkPlanExec":
        yield from _scans(plan.executedPlan(), is_shuffled=is_shuffled)
    elif name.endswith("QueryStageExec"):
        yield from _scans(plan.plan(), is_shuffled=is_shuffled)
    elif plan.children().isEmpty():
        with suppress(Py4JError):  # Others have no such method.
            if plan.getStream().isDefined():
                yield plan, is_shuffled
    else:
        is_shuffled = is_shuffled or name in _KEPT
        for child in sequence(plan.children()):
            yield from _scans(child, is_shuffled=is_shuffled)


def _may_filter(leaf: Any) -> bool:
    """Whether the scan of a stream's files may leave some of their rows out."""
    if leaf.getClass().getSimpleName() != "FileSourceScanExec":
        return False
    given = {name: str(leaf.metadata().apply(name)) for name in ("PartitionFilters", "PushedFilters")}
    format_ = str(leaf.relation().fileFormat()).lower()
    pushed = format_.startswith(_FILTERING) or any(
        format_.startswith(name) and leaf.session().conf().get(f"spark.sql.{name}.filterPushdown.enabled") == "true"
        for name in _BY_SETTING
    )
    return given["PartitionFilters"] != "[]" or (pushed and given["PushedFilters"] != "[]")


def metric(frame: DataFrame, name: str, column: int = 0) -> int:
    """An observed metric of a frame that was executed; 0 where the optimizer found nothing to execute."""
    metrics = execution_of(frame).observedMetrics().get(name)
    if metrics.isEmpty() or metrics.get().isNullAt(column):
        return 0
    return int(metrics.get().getLong(column))


def metrics_of(frame: DataFrame) -> Iterator[str]:
    """The names of the metrics that an executed frame observed."""
    names = execution_of(frame).observedMetrics().keys().toSeq()
    yield from (str(name) for name in sequence(names))


def is_clustered(frame: DataFrame, key: Sequence[str]) -> bool:
    """Whether Spark's plan already brings rows of one key into one partition, as that of an aggregate does."""
    plan = execution_of(frame).executedPlan()
    if int(plan.outputPartitioning().numPartitions()) == 1:
        return True
    names = {attribute.exprId().toString(): attribute.name() for attribute in sequence(plan.output())}
    partitioning = plan.outputPartitioning()
    if partitioning.getClass().getSimpleName() != "HashPartitioning":
        return False
    return all(
        expression.getClass().getSimpleName() == "AttributeReference"
        and names.get(expression.exprId().toString()) in key
        for expression in sequence(partitioning.expressions())
    )


def shuffled_bytes(frame: DataFrame) -> int | None:
    """How many bytes the shuffles hold that all rows come out of, which are made for it; None if some come otherwise.

    What they hold is not made again when the rows are computed. The smaller the result of an aggregate, the less its
    shuffle holds.

    Source: SparkContext.submitMapStage, by which ShuffleExchangeExec gives its statistics to adaptive execution.
    """
    rows = execution_of(frame).toRdd()
    shuffles = list(_shuffles(rows))
    if None in shuffles:
        return None
    made = (rows.context().submitMapStage(shuffle).get() for shuffle in shuffles if shuffle.rdd().getNumPartitions())
    return sum(sum(statistics.bytesByPartitionId()) for statistics in made)


def _shuffles(rows: Any) -> Iterator[Any]:
    """The shuffles by which the last stage of an RDD gets its rows; None for what it reads itself."""
    dependencies = list(sequence(rows.dependencies()))
    if not dependencies:
        yield None
    for dependency in dependencies:
        if dependency.getClass().getSimpleName() == "ShuffleDependency":
            yield dependency
        else:
            yield from _shuffles(dependency.rdd())
