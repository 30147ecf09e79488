"""A batch plan that leaves out what Spark dropped as late, and the groups that Spark has not closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.plans import plan_rewrite as plans
from headrace.spark.plans.analysed import analysed_plan, clock_expressions, identity, plan_facts
from headrace.spark.plans.determinism import order_dependent
from headrace.spark.plans.operators import ARBITRARY_STATE, LIMITS, PlannedOperator, stateful
from headrace.spark.plans.plan_rewrite import BATCH, LATE, ORIGIN, Tree
from headrace.units import instant
from headrace.verifier.verdict import LateRow, OperatorLateRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The names of metrics begin with these; the columns of the first are the late rows, then these two, and those of the
# second the open groups, then those that are never closed.
LATE_METRIC, OPEN_METRIC = "headrace_late_at_", "headrace_open_at_"
REVIVED, REPLAYED = 1, 2
NEVER = 1
_IS_LATE, _IS_CLOSED, _RANK = "__headrace_is_late", "__headrace_is_closed", "__headrace_rank"


@dataclass(frozen=True, kw_only=True)
class LateInput:
    """The rows that one stateful operator dropped.

    rows: (batch INT, watermark TIMESTAMP, time TIMESTAMP, row STRUCT), where `row` is the operator's input and `time`
    its event time, or its window's end where no event time is left; then `origin`, if the prefix is `named`.
    """

    operator: str
    rows: DataFrame


def count_by_batch(dropped: LateInput) -> Iterator[OperatorLateRows]:
    """Count the rows that the operator dropped in each batch that dropped any, in order."""
    for row in dropped.rows.groupBy("batch", _micros("watermark")).count().orderBy("batch").collect():
        yield OperatorLateRows(
            operator=dropped.operator,
            batch=row["batch"],
            watermark=_moment(row["watermark"]),
            rows=row["count"],
        )


def list_late_rows(late: Iterable[LateInput], most: int) -> Iterator[LateRow]:
    """List the first rows that each operator dropped, the oldest batch first; at most `most` in all."""
    for dropped in late:
        rows = dropped.rows.select("batch", _micros("watermark"), _micros("time"), "row")
        for row in rows.orderBy("batch", "time").limit(most).collect() if most > 0 else ():
            most -= 1
            yield LateRow(
                operator=dropped.operator,
                batch=row["batch"],
                watermark=_moment(row["watermark"]),
                time=_moment(row["time"]),
                row=row["row"].asDict(recursive=True),
            )


def _micros(name: str) -> Column:
    """Return a timestamp as a number, which Python does not move into the machine's own time zone."""
    from pyspark.sql import functions as F

    return F.unix_micros(F.col(name)).alias(name)


def _moment(micros: int) -> datetime:
    # Seconds and microseconds apart, so that nothing is rounded.
    return instant(micros // 1_000_000).replace(microsecond=micros % 1_000_000)


@dataclass(frozen=True, kw_only=True)
class OperatorStep:
    """A stateful operator of the plan. `evict_ms` is the watermark by which its groups are closed."""

    number: int
    operator: PlannedOperator
    evict_ms: int


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """A plan, the rows that its operators drop, and why some of these rows cannot be determined."""

    plan: Any
    late: tuple[LateInput, ...] = ()
    incomplete: tuple[Finding, ...] = ()


def steps_of(tree: Tree, operators: Sequence[PlannedOperator], evict_ms: Sequence[int]) -> Mapping[int, OperatorStep]:
    """Return the operators of `tree` by the identity of their nodes; `operators` go from the result downwards."""
    numbered = enumerate(zip(stateful(tree), operators, evict_ms, strict=True))
    return {
        id(node): OperatorStep(number=at, operator=operator, evict_ms=evict) for at, (node, operator, evict) in numbered
    }


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """How a plan is rewritten.

    replayed: the last batch whose late rows were brought back into the result. named: whether each row carries its
    origin, so that late rows do too.
    """

    spark: SparkSession
    query: Query
    steps: Mapping[int, OperatorStep]
    replayed: int
    named: bool

    def rewrite(self, tree: Tree) -> Rewritten:
        """Add a filter below each operator that drops rows, and one above each that has not closed all groups."""
        if not tree.from_source or not tree.below:
            return Rewritten(plan=tree.plan)
        step = self.steps.get(id(tree))
        below = [self._input(step, at, child) for at, child in enumerate(tree.below)]
        plan = plans.with_children(self.spark, tree.plan, [part.plan for part in below])
        if step is not None and step.operator.kind == "DeduplicateWithinWatermark":
            plan = plans.as_plain_deduplication(self.spark, plan)
        if step is not None and step.operator.closing is not None and self.query.mode == "append":
            plan = self._without_open(step, tree, plan, step.operator.closing)
        return Rewritten(
            plan=plan,
            late=tuple(late for part in below for late in part.late),
            incomplete=tuple(finding for part in below for finding in part.incomplete),
        )

    def _input(self, step: OperatorStep | None, at: int, child: Tree) -> Rewritten:
        """Rewrite the child of a node; below an operator that drops late rows, without them."""
        column = step.operator.late[at] if step is not None else None
        if step is None or column is None or step.operator.covered[at]:
            return self.rewrite(child)
        return self._without_late(step, at, child, column)

    def _without_late(self, step: OperatorStep, at: int, child: Tree, column: int) -> Rewritten:
        """Return the child of an operator without the rows that it drops by the time in `column`."""
        from pyspark.sql import functions as F

        attributes = plans.attributes(child.plan)
        time = step.operator.time[at]
        moment = plans.end_micros(self.spark, attributes[column if time is None else time])
        try:
            carried = plans.frame_of(self.spark, plans.with_provenance(self.spark, child))
        except plans.UntraceableError as node:
            return Rewritten(plan=child.plan, incomplete=(report_untraceable(self.query, node),))
        behind = plans.end_micros(self.spark, attributes[column]) <= F.col(LATE)
        # False for a row that was brought back, NULL for one in time. The time stands once in the plan: where an
        # expression stands twice over sliding windows, Spark makes a function of it, in code that does not compile.
        judged = carried.withColumn(_IS_LATE, F.when(behind, F.col(BATCH) > self.replayed))
        counted = judged.observe(
            f"{LATE_METRIC}{step.number}_{at}",
            F.count_if(F.col(_IS_LATE)).alias("rows"),
            self._count_revived(step.operator, attributes[column]).alias("revived"),
            F.count_if(~F.col(_IS_LATE)).alias("replayed"),
        )
        kept = plans.select_only(self.spark, counted.where(~_is_late()), attributes)
        dropped = judged.where(F.col(_IS_LATE)).select(
            F.col(BATCH).cast("int").alias("batch"),
            F.timestamp_micros(F.col(LATE)).alias("watermark"),
            F.timestamp_micros(moment).alias("time"),
            F.struct(*[plans.column_of(self.spark, attribute) for attribute in attributes]).alias("row"),
            *([F.col(ORIGIN).alias("origin")] if self.named else []),
        )
        return Rewritten(plan=analysed_plan(kept), late=(LateInput(operator=step.operator.kind, rows=dropped),))

    def _count_revived(self, operator: PlannedOperator, attribute: Any) -> Column:
        """Count the rows that are not late, although a session that they would have prolonged may have been closed."""
        from pyspark.sql import functions as F

        if not operator.session or self.query.mode == "complete":
            return F.sum(F.lit(0))
        start = F.unix_micros(plans.column_of(self.spark, attribute)["start"].cast("timestamp"))
        return F.count_if(~_is_late() & (start <= F.col(LATE)))

    def _without_open(self, step: OperatorStep, tree: Tree, plan: Any, closing: int) -> Any:
        """Return an aggregation without the groups that are still open by the time in column `closing` of its child."""
        from pyspark.sql import functions as F

        attribute = plans.attributes(tree.below[0].plan)[closing]
        output = plans.attributes(tree.plan)
        if tree.name == "Aggregate" and identity(attribute) not in map(identity, output):
            plan = plans.with_key(self.spark, plan, attribute)
        closed = plans.end_micros(self.spark, attribute) <= F.lit(step.evict_ms * 1000)
        # NULL for a group without a time, which Spark never closes.
        judged = plans.frame_of(self.spark, plan).withColumn(_IS_CLOSED, closed)
        counts = F.count_if(~F.col(_IS_CLOSED)).alias("rows"), F.count_if(F.col(_IS_CLOSED).isNull()).alias("never")
        counted = judged.observe(f"{OPEN_METRIC}{step.number}", *counts)
        return analysed_plan(plans.select_only(self.spark, counted.where(F.col(_IS_CLOSED)), output))


def latest_by_key(
    spark: SparkSession, query: Query, tree: Tree, key: tuple[str, ...]
) -> tuple[DataFrame, tuple[Finding, ...]]:
    """Return, for a stateless query in update mode, each key's row of its last batch, and why it may be unknown."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    attributes = plans.attributes(tree.plan)
    try:
        carried = plans.frame_of(spark, plans.with_provenance(spark, tree))
    except plans.UntraceableError as node:
        return plans.frame_of(spark, tree.plan), (report_untraceable(query, node),)
    by = [plans.column_of(spark, attribute) for attribute in attributes if plans.name_of(attribute) in key]
    ranked = carried.withColumn(_RANK, F.rank().over(Window.partitionBy(*by).orderBy(F.desc(BATCH))))
    return plans.select_only(spark, ranked.where(F.col(_RANK) == 1), attributes), ()


def _is_late() -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.col(_IS_LATE), F.lit(False))


@dataclass(frozen=True, kw_only=True)
class Caveat(Finding):
    """A reason why a difference does not prove the sink wrong.

    settled_by_rerun: another run over the same batches decides. by_order: but that run may differ as well, because rows
    of one batch have no order. of_held_rows: void if the rows that an operator holds back cannot explain the
    difference. of_equal_rows: void if the answer has no equal rows.
    """

    settled_by_rerun: bool = False
    by_order: bool = False
    of_held_rows: bool = False
    of_equal_rows: bool = False


def find_caveats(
    query: Query, stream: DataFrame, tree: Tree, operators: tuple[PlannedOperator, ...]
) -> Iterator[Finding]:
    """Return the caveats that follow from the query's own plan."""
    yield from _find_changing_answers(query, stream, tree)
    for operator in operators:
        if operator.by_order:
            yield _by_order(
                query,
                f"query '{query.name}' keeps the duplicate that came first, and a batch knows no order",
                "drop duplicates by every column that is used afterwards, so that they do not differ",
            )
        if operator.kind == "Join" or any(name in operator.kind for name in ARBITRARY_STATE):
            kind = "a join of two streams" if operator.kind == "Join" else "an operator with a state of its own"
            problem = f"what {kind} drops, or has not given out yet, cannot be determined from outside"
            yield doubt(query, problem, "compare the differing rows below by hand", of_held_rows=True)
    for name in dict.fromkeys(node.name for node in tree.walk() if node.name in LIMITS):
        yield _by_order(
            query,
            f"query '{query.name}' takes the first rows only ({name}), and equal rows have no order",
            "sort by enough columns, or take the first rows where the result is read",
            of_equal_rows=True,
        )


def doubt(query: Query, problem: str, fix: str, *, by_rerun: bool = True, of_held_rows: bool = False) -> Finding:
    """Return why a difference may be right."""
    return Caveat(
        code="HR706", settled_by_rerun=by_rerun, of_held_rows=of_held_rows, what=problem, fix=fix, where=query.where
    )


def _by_order(query: Query, problem: str, fix: str, *, of_equal_rows: bool = False) -> Finding:
    return Caveat(
        code="HR641",
        settled_by_rerun=True,
        by_order=True,
        of_equal_rows=of_equal_rows,
        what=problem,
        fix=fix,
        where=query.where,
    )


def report_untraceable(query: Query, node: plans.UntraceableError) -> Finding:
    """Return the caveat for rows that lose their batch on the way."""
    problem = f"rows of query '{query.name}' pass through {node}, behind which it cannot be determined which came late"
    return doubt(query, problem, "use column expressions there, or judge the differing rows by hand")


def report_order_of_rows(query: Query, of: str) -> Finding:
    """Return the caveat for an answer that depends on which row comes first."""
    problem = f"what query '{query.name}' gives depends on the order in which rows come: {of}"
    return _by_order(query, problem, "sort what is collected, or choose by columns in which no two rows are equal")


def _find_changing_answers(query: Query, stream: DataFrame, tree: Tree) -> Iterator[Finding]:
    facts = plan_facts(stream)
    by_clock = ["timeouts by the clock"] if facts.by_clock else []
    calls = list(dict.fromkeys([*facts.indeterminate, *clock_expressions(stream, tree.plan), *by_clock]))
    if calls:
        yield query.finding(
            "HR241",
            f"may answer otherwise when it is asked again: {', '.join(calls[:3])}",
            "compute the value from the row's own columns",
            severity="note",
        )
    if ordered := order_dependent(tree):
        yield report_order_of_rows(query, ", ".join(ordered[:3]))
