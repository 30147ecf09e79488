"""The batch answer over a committed prefix, without what Spark dropped as late and what it has not closed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.build.plan_builder import build
from headrace.errors import CheckFailed, Finding
from headrace.model import Project, Query
from headrace.spark import plan_rewrite as plans
from headrace.spark.operators import (
    ARBITRARY_STATE,
    Operator,
    columns_by_time,
    evictions,
    keeps_state,
    kind_of,
    operators,
    stateful,
)
from headrace.spark.plan_rewrite import BATCH, LATE, ORIGIN, Tree
from headrace.spark.plans import analysed_plan, sequence
from headrace.verify import caveats as doubts
from headrace.verify import source_uses
from headrace.verify.prefix import Prefix
from headrace.verify.version_ranges import OtherShapeError, Stretch, Stretches, above_state, other_shape, united

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LATE_METRIC = "headrace_late_at_"
REVIVED, REPLAYED = 1, 2
OPEN_METRIC = "headrace_open_at_"
_IS_LATE = "__headrace_is_late"
_IS_CLOSED = "__headrace_is_closed"


@dataclass(frozen=True, kw_only=True)
class LateInput:
    """The rows that one stateful operator dropped.

    rows: (batch INT, watermark TIMESTAMP, time TIMESTAMP, row STRUCT), where `row` is the operator's input and `time`
    its event time, or its window's end where no event time is left; then `origin`, if the prefix is `named`.
    """

    operator: str
    rows: DataFrame


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the sink must hold.

    late: the dropped rows, an element for each operator that can drop; counted in the metrics LATE_METRIC + index.
    doubts: why a difference from the answer would not prove that the sink is wrong.
    untold: those of them because of which `late` lacks rows.
    operators: the stateful operators, from the result downwards.
    by_time: the columns of the result that follow from the event time by which the topmost operator groups.
    """

    frame: DataFrame
    late: tuple[LateInput, ...]
    doubts: tuple[Finding, ...]
    incomplete: tuple[Finding, ...] = ()
    operators: tuple[Operator, ...] = ()
    by_time: tuple[str, ...] = ()

    @property
    def by_function(self) -> bool:
        """Whether a function with a state of its own makes the result, which a batch cannot."""
        return any(each in operator.kind for operator in self.operators for each in ARBITRARY_STATE)

    @property
    def inner_joins_alone(self) -> bool:
        """Whether the result is made of inner joins of streams, and no other state.

        A pair of rows comes out as soon as both are there, so that the result never holds a row that the batch answer
        has not; without late rows it lacks none either.
        """
        return bool(self.operators) and {(each.kind, each.join) for each in self.operators} == {("Join", "INNER")}


def answer(
    project: Project,
    query: Query,
    prefix: Prefix,
    spark: SparkSession,
    over: Stretches,
    key: tuple[str, ...] = (),
    *,
    replayed: int | None = None,
) -> Answer:
    """Apply the query's own function to `prefix` and leave out late rows and open groups.

    Late rows of the batches up to `replayed` are in the answer, because they were brought back into the result. The
    function is applied twice: to the streams, which are never started, to learn from the plan what Spark does with late
    rows; and to the prefix, whose plan then gets a filter below or above those operators.
    """
    stream = build(
        project,
        query.transform,
        spark,
        lambda source: source.connector.stream(spark, source.name),
        over.last.tables,
    )
    streaming = plans.inlined(spark, analysed_plan(stream))
    analysed, optimised = (plans.stream_tree(each) for each in (streaming, plans.optimised(spark, streaming)))
    known = operators(analysed, optimised, complete=query.mode == "complete")
    newest = not known and query.mode == "update" and bool(key)
    dated = newest or any(column is not None for operator in known for column in operator.late)
    batch, tree, unsure = _over(project, query, prefix, spark, over, dated=dated)
    work = _Rewriting(
        spark=spark,
        query=query,
        evict_ms=prefix.evict_ms,
        replayed=-1 if replayed is None else replayed,
        named=prefix.named,
    )
    work.doubts.extend((*unsure, *doubts.of_plan(query, stream, analysed, known)))
    if [kind_of(node) for node in stateful(tree)] != [operator.kind for operator in known]:
        shape = doubts.other_shape(query)
        return Answer(frame=batch, late=(), doubts=(*work.doubts, shape), incomplete=(shape,), operators=known)
    work.operators = known
    if prefix.evict_ms > 0 and any(operator.kind == "Join" for operator in known):
        found = evictions(spark, optimised, prefix.evict_ms)
        work.evictions = found if len(found) == len(known) else ()
    if newest:
        return Answer(frame=work.latest(tree, key), late=(), doubts=(*work.doubts, *work.incomplete))
    frame = plans.only(spark, plans.frame_of(spark, work.rewritten(tree)), sequence(tree.plan.output()))
    return Answer(
        frame=frame,
        late=tuple(work.late),
        doubts=(*work.doubts, *work.incomplete),
        incomplete=tuple(work.incomplete),
        operators=known,
        by_time=columns_by_time(analysed),
    )


def _over(
    project: Project, query: Query, prefix: Prefix, spark: SparkSession, over: Stretches, *, dated: bool
) -> tuple[DataFrame, Tree, tuple[Finding, ...]]:
    """The query applied to each stretch of the prefix with the tables of that time, and what is not certain of it."""

    def over_part(share: Prefix, stretch: Stretch) -> tuple[DataFrame, Tree]:
        frame = build(
            project, query.transform, spark, lambda source: share.read(spark, source, dated=dated), stretch.tables
        )
        plan = plans.inlined(spark, analysed_plan(frame))
        known = {source.name: source for source in project.sources_of(query)}
        plan = source_uses.apart(
            spark, plan, lambda name, use: share.read(spark, known[name], dated=dated, use=use), share.sources
        )
        return plans.frame_of(spark, plan), plans.batch_tree(plan)

    if len(over.all) == 1:
        return *over_part(prefix, over.last), over.doubts
    try:
        parts = [over_part(prefix.part(stretch.first, stretch.last), stretch) for stretch in over.all]
        plan, differs = united(spark, [tree for _, tree in parts])
    except (CheckFailed, OtherShapeError):
        return *over_part(prefix, over.last), (*over.doubts, other_shape(query))
    unsure = (above_state(query),) if differs and query.mode != "complete" else ()
    return plans.frame_of(spark, plan), plans.batch_tree(plan), (*over.doubts, *unsure)


@dataclass(kw_only=True)
class _Rewriting:
    """One walk over the batch plan; operators are met in the order in which they were listed."""

    spark: SparkSession
    query: Query
    evict_ms: int
    replayed: int
    named: bool
    operators: tuple[Operator, ...] = ()
    evictions: tuple[int, ...] = ()
    met: int = 0
    closing: int = 0
    late: list[LateInput] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)
    incomplete: list[Finding] = field(default_factory=list)

    def rewritten(self, tree: Tree) -> Any:
        """The plan with a filter below each operator that drops rows, and one above each that has not closed all."""
        if not tree.from_source or not tree.below:
            return tree.plan
        operator, evict_ms = None, self.evict_ms
        if keeps_state(tree):
            operator = self.operators[self.met]
            evict_ms = self.evictions[self.met] if self.evictions else self.evict_ms
            self.met += 1
        children = [self.rewritten(child) for child in tree.below]
        if operator is None:
            return plans.with_children(self.spark, tree.plan, children)
        for index, column in enumerate(operator.late):
            if column is not None and not operator.covered[index]:
                children[index] = self._without_late(operator, tree.below[index], column, operator.time[index])
        changed = plans.with_children(self.spark, tree.plan, children)
        if operator.kind == "DeduplicateWithinWatermark":
            changed = plans.deduplicated(self.spark, changed)
        if operator.closing is not None and self.query.mode == "append":
            changed = self._without_open(tree, changed, operator.closing, evict_ms)
        return changed

    def _without_late(self, operator: Operator, child: Tree, column: int, time: int | None) -> Any:
        """The operator's child without the rows that the operator drops, as the time in `column` tells."""
        from pyspark.sql import functions as F

        attribute = child.plan.output().apply(column)
        moment = plans.end_micros(self.spark, attribute if time is None else child.plan.output().apply(time))
        try:
            carried = plans.frame_of(self.spark, plans.with_provenance(self.spark, child))
        except plans.UntraceableError as node:
            self.incomplete.append(doubts.untraceable(self.query, str(node)))
            return child.plan
        end = plans.end_micros(self.spark, attribute)
        behind = F.coalesce(end <= F.col(LATE), F.lit(False))
        judged = carried.withColumn(_IS_LATE, behind & (F.col(BATCH) > self.replayed))
        metrics = [
            F.count_if(F.col(_IS_LATE)).alias("rows"),
            self._revived(operator, attribute).alias("revived"),
            F.count_if(behind & (F.col(BATCH) <= self.replayed)).alias("replayed"),
        ]
        kept = judged.observe(f"{LATE_METRIC}{len(self.late)}", *metrics).where(~F.col(_IS_LATE))
        attributes = list(sequence(child.plan.output()))
        dropped = judged.where(F.col(_IS_LATE)).select(
            F.col(BATCH).cast("int").alias("batch"),
            F.timestamp_micros(F.col(LATE)).alias("watermark"),
            F.timestamp_micros(moment).alias("time"),
            F.struct(*[plans.column_of(self.spark, each) for each in attributes]).alias("row"),
            *([F.col(ORIGIN).alias("origin")] if self.named else []),
        )
        self.late.append(LateInput(operator=operator.kind, rows=dropped))
        return analysed_plan(plans.only(self.spark, kept, attributes))

    def _revived(self, operator: Operator, attribute: Any) -> Any:
        """How many rows are not late although a session that they would have prolonged may have been closed."""
        from pyspark.sql import functions as F

        if not operator.session or self.query.mode == "complete":
            return F.sum(F.lit(0))
        start = F.unix_micros(plans.column_of(self.spark, attribute)["start"].cast("timestamp"))
        return F.count_if(~F.col(_IS_LATE) & (start <= F.col(LATE)))

    def _without_open(self, tree: Tree, changed: Any, closing: int, evict_ms: int) -> Any:
        """An aggregation without the groups that the watermark has not closed."""
        from pyspark.sql import functions as F

        attribute = tree.below[0].plan.output().apply(closing)
        output = list(sequence(tree.plan.output()))
        if tree.name == "Aggregate" and plans.identity(attribute) not in map(plans.identity, output):
            columns = [*sequence(changed.aggregateExpressions()), attribute]
            changed = plans.with_parts(self.spark, changed, {1: plans.scala_seq(self.spark, columns)})
        closed = plans.end_micros(self.spark, attribute) <= F.lit(evict_ms * 1000)
        judged = plans.frame_of(self.spark, changed).withColumn(_IS_CLOSED, F.coalesce(closed, F.lit(False)))
        self.closing += 1
        counted = judged.observe(f"{OPEN_METRIC}{self.closing}", F.count_if(~F.col(_IS_CLOSED)).alias("rows"))
        return analysed_plan(plans.only(self.spark, counted.where(F.col(_IS_CLOSED)), output))

    def latest(self, tree: Tree, key: tuple[str, ...]) -> DataFrame:
        """A stateless query in update mode: of each key, the row of the last batch that brought it."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        attributes = list(sequence(tree.plan.output()))
        try:
            carried = plans.frame_of(self.spark, plans.with_provenance(self.spark, tree))
        except plans.UntraceableError as node:
            self.incomplete.append(doubts.untraceable(self.query, str(node)))
            return plans.frame_of(self.spark, tree.plan)
        by = [plans.column_of(self.spark, each) for each in attributes if each.name() in key]
        newest = carried.withColumn(_IS_CLOSED, F.rank().over(Window.partitionBy(*by).orderBy(F.desc(BATCH))))
        return plans.only(self.spark, newest.where(F.col(_IS_CLOSED) == 1), attributes)
