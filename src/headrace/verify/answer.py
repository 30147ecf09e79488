"""The batch answer over a committed prefix, without what Spark dropped as late and what it has not closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.build.plan_builder import build
from headrace.errors import CheckFailed, Finding
from headrace.model import Project, Query
from headrace.spark import batch_uses
from headrace.spark import plan_rewrite as plans
from headrace.spark.operators import (
    ARBITRARY_STATE,
    Operator,
    columns_by_time,
    evictions,
    kind_of,
    operators,
    stateful,
)
from headrace.spark.plan_rewrite import Tree
from headrace.spark.plans import analysed_plan
from headrace.verify import caveats
from headrace.verify.late_and_open import LateInput, Rewriting, latest, steps
from headrace.verify.prefix import Prefix
from headrace.verify.version_ranges import (
    OtherShapeError,
    VersionRange,
    VersionRanges,
    above_state,
    other_shape,
    united,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the sink must hold.

    late: the dropped rows, an element for each operator that can drop; counted in the metrics LATE_METRIC + index.
    caveats: why a difference from the answer would not prove that the sink is wrong.
    untold: those of them because of which `late` lacks rows.
    operators: the stateful operators, from the result downwards.
    by_time: the columns of the result that follow from the event time by which the topmost operator groups.
    """

    frame: DataFrame
    late: tuple[LateInput, ...]
    caveats: tuple[Finding, ...]
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
    over: VersionRanges,
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
    uncertain = (*unsure, *caveats.of_plan(query, stream, analysed, known))
    if [kind_of(node) for node in stateful(tree)] != [operator.kind for operator in known]:
        shape = caveats.other_shape(query)
        return Answer(frame=batch, late=(), caveats=(*uncertain, shape), incomplete=(shape,), operators=known)
    if newest:
        frame, untraced = latest(spark, query, tree, key)
        return Answer(frame=frame, late=(), caveats=(*uncertain, *untraced))
    evicted: tuple[int, ...] = ()
    if prefix.evict_ms > 0 and any(operator.kind == "Join" for operator in known):
        evicted = evictions(spark, optimised, prefix.evict_ms)
    rewriting = Rewriting(
        spark=spark,
        query=query,
        steps=steps(tree, known, evicted if len(evicted) == len(known) else (prefix.evict_ms,) * len(known)),
        replayed=-1 if replayed is None else replayed,
        named=prefix.named,
    )
    found = rewriting.of(tree)
    return Answer(
        frame=plans.only(spark, plans.frame_of(spark, found.plan), plans.attributes(tree.plan)),
        late=found.late,
        caveats=(*uncertain, *found.incomplete),
        incomplete=found.incomplete,
        operators=known,
        by_time=columns_by_time(analysed),
    )


def _over(
    project: Project, query: Query, prefix: Prefix, spark: SparkSession, over: VersionRanges, *, dated: bool
) -> tuple[DataFrame, Tree, tuple[Finding, ...]]:
    """The query applied to each version range of the prefix with the tables of that time, and what is uncertain."""

    def over_part(share: Prefix, range_: VersionRange) -> tuple[DataFrame, Tree]:
        frame = build(
            project, query.transform, spark, lambda source: share.read(spark, source, dated=dated), range_.tables
        )
        plan = plans.inlined(spark, analysed_plan(frame))
        known = {source.name: source for source in project.sources_of(query)}
        plan = batch_uses.apart(
            spark, plan, lambda name, use: share.read(spark, known[name], dated=dated, use=use), share.sources
        )
        return plans.frame_of(spark, plan), plans.batch_tree(plan)

    if len(over.all) == 1:
        return *over_part(prefix, over.last), over.caveats
    try:
        parts = [over_part(prefix.part(range_.first, range_.last), range_) for range_ in over.all]
        plan, differs = united(spark, [tree for _, tree in parts])
    except (CheckFailed, OtherShapeError):
        return *over_part(prefix, over.last), (*over.caveats, other_shape(query))
    unsure = (above_state(query),) if differs and query.mode != "complete" else ()
    return plans.frame_of(spark, plan), plans.batch_tree(plan), (*over.caveats, *unsure)
