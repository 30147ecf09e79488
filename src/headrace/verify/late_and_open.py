"""A batch plan that leaves out what Spark dropped as late, and the groups that Spark has not closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import Finding
from headrace.model import Query
from headrace.spark import plan_rewrite as plans
from headrace.spark.operators import Operator, stateful
from headrace.spark.plan_rewrite import BATCH, LATE, ORIGIN, Tree
from headrace.spark.plans import analysed_plan
from headrace.verify import caveats

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The names of metrics begin with these; the columns of the first are the late rows, then these two.
LATE_METRIC, OPEN_METRIC = "headrace_late_at_", "headrace_open_at_"
REVIVED, REPLAYED = 1, 2
_IS_LATE, _IS_CLOSED, _RANK = "__headrace_is_late", "__headrace_is_closed", "__headrace_rank"


@dataclass(frozen=True, kw_only=True)
class LateInput:
    """The rows that one stateful operator dropped.

    rows: (batch INT, watermark TIMESTAMP, time TIMESTAMP, row STRUCT), where `row` is the operator's input and `time`
    its event time, or its window's end where no event time is left; then `origin`, if the prefix is `named`.
    """

    operator: str
    rows: DataFrame


@dataclass(frozen=True, kw_only=True)
class Step:
    """A stateful operator of the plan. `evict_ms` is the watermark by which its groups are closed."""

    number: int
    operator: Operator
    evict_ms: int


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """A plan, the rows that its operators drop, and why some of these rows cannot be determined."""

    plan: Any
    late: tuple[LateInput, ...] = ()
    incomplete: tuple[Finding, ...] = ()


def steps(tree: Tree, operators: Sequence[Operator], evict_ms: Sequence[int]) -> Mapping[int, Step]:
    """The operators of `tree` by the identity of their nodes; `operators` are listed from the result downwards."""
    found = enumerate(zip(stateful(tree), operators, evict_ms, strict=True))
    return {id(node): Step(number=at, operator=operator, evict_ms=evict) for at, (node, operator, evict) in found}


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """How a plan is rewritten: its operators, and the last batch whose late rows are in the result all the same.

    named: whether each row says where it came from, so that late rows do too.
    """

    spark: SparkSession
    query: Query
    steps: Mapping[int, Step]
    replayed: int
    named: bool

    def of(self, tree: Tree) -> Rewritten:
        """The plan with a filter below each operator that drops rows, and one above each that has not closed all."""
        if not tree.from_source or not tree.below:
            return Rewritten(plan=tree.plan)
        step = self.steps.get(id(tree))
        below = [self._input(step, at, child) for at, child in enumerate(tree.below)]
        plan = plans.with_children(self.spark, tree.plan, [each.plan for each in below])
        return Rewritten(
            plan=plan if step is None else self._as_batch(step, tree, plan),
            late=tuple(late for each in below for late in each.late),
            incomplete=tuple(finding for each in below for finding in each.incomplete),
        )

    def _input(self, step: Step | None, at: int, child: Tree) -> Rewritten:
        """What a node takes from its child: of an operator that drops late rows, the others."""
        column = step.operator.late[at] if step is not None else None
        if step is None or column is None or step.operator.covered[at]:
            return self.of(child)
        return self._without_late(step, at, child, column)

    def _as_batch(self, step: Step, tree: Tree, plan: Any) -> Any:
        """An operator over its rewritten inputs as a batch can run it, without the groups that are still open."""
        if step.operator.kind == "DeduplicateWithinWatermark":
            plan = plans.deduplicated(self.spark, plan)
        if step.operator.closing is not None and self.query.mode == "append":
            plan = self._without_open(step, tree, plan, step.operator.closing)
        return plan

    def _without_late(self, step: Step, at: int, child: Tree, column: int) -> Rewritten:
        """The child of an operator without the rows that the operator drops, as the time in `column` tells."""
        from pyspark.sql import functions as F

        attributes = plans.attributes(child.plan)
        time = step.operator.time[at]
        moment = plans.end_micros(self.spark, attributes[column if time is None else time])
        try:
            carried = plans.frame_of(self.spark, plans.with_provenance(self.spark, child))
        except plans.UntraceableError as node:
            return Rewritten(plan=child.plan, incomplete=(caveats.untraceable(self.query, str(node)),))
        behind = F.coalesce(plans.end_micros(self.spark, attributes[column]) <= F.col(LATE), F.lit(False))
        judged = carried.withColumn(_IS_LATE, behind & (F.col(BATCH) > self.replayed))
        counted = judged.observe(
            f"{LATE_METRIC}{step.number}_{at}",
            F.count_if(F.col(_IS_LATE)).alias("rows"),
            self._revived(step.operator, attributes[column]).alias("revived"),
            F.count_if(behind & (F.col(BATCH) <= self.replayed)).alias("replayed"),
        )
        kept = plans.only(self.spark, counted.where(~F.col(_IS_LATE)), attributes)
        dropped = judged.where(F.col(_IS_LATE)).select(
            F.col(BATCH).cast("int").alias("batch"),
            F.timestamp_micros(F.col(LATE)).alias("watermark"),
            F.timestamp_micros(moment).alias("time"),
            F.struct(*[plans.column_of(self.spark, each) for each in attributes]).alias("row"),
            *([F.col(ORIGIN).alias("origin")] if self.named else []),
        )
        return Rewritten(plan=analysed_plan(kept), late=(LateInput(operator=step.operator.kind, rows=dropped),))

    def _revived(self, operator: Operator, attribute: Any) -> Column:
        """How many rows are not late although a session that they would have prolonged may have been closed."""
        from pyspark.sql import functions as F

        if not operator.session or self.query.mode == "complete":
            return F.sum(F.lit(0))
        start = F.unix_micros(plans.column_of(self.spark, attribute)["start"].cast("timestamp"))
        return F.count_if(~F.col(_IS_LATE) & (start <= F.col(LATE)))

    def _without_open(self, step: Step, tree: Tree, plan: Any, closing: int) -> Any:
        """An aggregation without the groups that are still open, by the time in column `closing` of its child."""
        from pyspark.sql import functions as F

        attribute = plans.attributes(tree.below[0].plan)[closing]
        output = plans.attributes(tree.plan)
        if tree.name == "Aggregate" and plans.identity(attribute) not in map(plans.identity, output):
            plan = plans.giving(self.spark, plan, attribute)
        closed = plans.end_micros(self.spark, attribute) <= F.lit(step.evict_ms * 1000)
        judged = plans.frame_of(self.spark, plan).withColumn(_IS_CLOSED, F.coalesce(closed, F.lit(False)))
        counted = judged.observe(f"{OPEN_METRIC}{step.number}", F.count_if(~F.col(_IS_CLOSED)).alias("rows"))
        return analysed_plan(plans.only(self.spark, counted.where(F.col(_IS_CLOSED)), output))


def latest(
    spark: SparkSession, query: Query, tree: Tree, key: tuple[str, ...]
) -> tuple[DataFrame, tuple[Finding, ...]]:
    """A stateless query in update mode: of each key, the row of the last batch that had it, or why that is unknown."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    attributes = plans.attributes(tree.plan)
    try:
        carried = plans.frame_of(spark, plans.with_provenance(spark, tree))
    except plans.UntraceableError as node:
        return plans.frame_of(spark, tree.plan), (caveats.untraceable(query, str(node)),)
    by = [plans.column_of(spark, each) for each in attributes if plans.name_of(each) in key]
    ranked = carried.withColumn(_RANK, F.rank().over(Window.partitionBy(*by).orderBy(F.desc(BATCH))))
    return plans.only(spark, ranked.where(F.col(_RANK) == 1), attributes), ()
