"""The committed prefix of a query's sources as batch DataFrames, and the batch answer over it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.build.plan_builder import build
from headrace.checkpoint import Archive, BatchWatermarks, Checkpoint, committed_prefix, watermarks
from headrace.contract import SourcePrefix
from headrace.errors import CheckFailed, Finding
from headrace.model import NamedSource, Project, Query
from headrace.queries.layout import QueryLayout
from headrace.spark.jvm.settings import WHOLE_JSON_UTC
from headrace.spark.plans import plan_rewrite as plans
from headrace.spark.plans import source_uses
from headrace.spark.plans.analysed import analysed_plan
from headrace.spark.plans.operators import (
    ARBITRARY_STATE,
    PlannedOperator,
    columns_by_time,
    evictions,
    kind_of,
    operators,
    stateful,
)
from headrace.spark.plans.plan_rewrite import BATCH, LATE, MARK, ORIGIN, Tree
from headrace.verifier import late_and_open
from headrace.verifier.batch_ranges import OtherShapeError, VersionRange, VersionRanges, united
from headrace.verifier.late_and_open import LateInput, Rewriting, latest, steps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The metrics' names begin so; their columns are the rows, then those without an event time.
READ = "headrace_prefix_of_"
UNTIMED = 1
_PLACE = "__headrace_place_of_row"
# A row as JSON that a reader with the source's schema takes for the same row.
ROW_OPTIONS = WHOLE_JSON_UTC


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """What the batches up to `through` of a query read, and the watermarks that they ran under.

    For an answer they begin with batch 0; for what is told row by row any first batch will do.

    named: whether each row knows its source, its number there, its file, and itself as JSON (ORIGIN, hidden as the
        others are).
    traced: whether BATCH is there also where no operator asks for it.
    timed: whether rows without an event time are left out.
    """

    through: int
    sources: Mapping[str, SourcePrefix]
    watermarks: Mapping[int, BatchWatermarks]
    named: bool = False
    traced: bool = False
    timed: bool = False
    label: str = ""

    def part(self, first: int, last: int) -> Prefix:
        """What the batches `first` to `last` read of it."""
        sources = {
            name: replace(source, batches=tuple(each for each in source.batches if first <= each.batch <= last))
            for name, source in self.sources.items()
        }
        return replace(self, sources=sources, label=f"_from_{first}")

    def read(self, spark: SparkSession, source: NamedSource, *, dated: bool, use: str = "") -> DataFrame:
        """The prefix of `source`, marked in its plan; if `dated`, BATCH and LATE lie hidden below the mark.

        use: the name of a further use of the source. The rows that are read, and those of them without an event time,
        are counted under the observed metric READ + the use's name + `label`.
        """
        from pyspark.sql import functions as F

        use = use or source.name
        prefix = self.sources.get(use, self.sources[source.name])
        if dated and self.named:
            raw = source.connector.read_placed(spark, prefix, batch_column=BATCH, place_column=_PLACE)
        else:
            raw = source.connector.read(spark, prefix, batch_column=BATCH if dated else None)
        visible = [name for name in raw.columns if name not in (BATCH, _PLACE)]
        late, first = [self.watermarks[batch].late_ms * 1000 for batch in sorted(self.watermarks)], min(self.watermarks)
        # One folded literal however many batches there are, and no join.
        table = F.from_json(F.lit(json.dumps(late)), "array<bigint>")
        if self.timed:
            raw = raw.where(~is_untimed(source))
        counted = raw.observe(
            READ + use + self.label, F.count(F.lit(1)).alias("rows"), F.count_if(is_untimed(source)).alias("untimed")
        )
        known = counted.withColumn(LATE, F.get(table, F.col(BATCH).cast("int") - first)) if dated else counted
        if dated and self.named:
            line = F.to_json(F.struct(*[F.col(f"`{name}`") for name in visible]), ROW_OPTIONS)
            number = F.monotonically_increasing_id()
            place = F.col(_PLACE).alias("file")
            origin = F.struct(F.lit(use).alias("source"), number.alias("number"), place, line.alias("line"))
            known = known.withColumn(ORIGIN, origin)
        return known.select(*[known[f"`{name}`"] for name in visible]).alias(MARK + use)


def is_untimed(source: NamedSource) -> Column:
    """Whether a row of a source with a watermark has no event time."""
    from pyspark.sql import functions as F

    return F.lit(False) if source.watermark is None else F.col(source.watermark.column).isNull()


def prefix_of(project: Project, query: Query, layout: QueryLayout, through: int, *, since: int = 0) -> Prefix:
    """The committed prefix of `query` up to and with batch `through`; of it the batches from `since` on.

    Raises CheckpointError when the checkpoint and its archive do not reach that far.
    """
    checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
    names = [source.name for source in project.sources_of(query)]
    return Prefix(
        through=through,
        sources=committed_prefix(checkpoint, archive, names, through, since=since),
        watermarks=watermarks(checkpoint, archive, through, since=since),
    )


@dataclass(frozen=True, kw_only=True)
class BatchAnswer:
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
    operators: tuple[PlannedOperator, ...] = ()
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
) -> BatchAnswer:
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
    streaming = plans.inline_ctes(spark, analysed_plan(stream))
    analysed, optimised = (plans.stream_tree(each) for each in (streaming, plans.optimise(spark, streaming)))
    known = operators(analysed, optimised, complete=query.mode == "complete")
    newest = not known and query.mode == "update" and bool(key)
    dated = newest or prefix.traced or any(column is not None for operator in known for column in operator.late)
    batch, tree, unsure = _over(project, query, prefix, spark, over, dated=dated)
    uncertain = (*unsure, *late_and_open.of_plan(query, stream, analysed, known))
    if [kind_of(node) for node in stateful(tree)] != [operator.kind for operator in known]:
        shape = Finding(
            code="HR710",
            what=f"query '{query.name}' is another query when it is applied to a batch",
            fix="do not let the function ask whether its input is a stream",
            where=query.where,
        )
        return BatchAnswer(frame=batch, late=(), caveats=(*uncertain, shape), incomplete=(shape,), operators=known)
    if newest:
        frame, untraced = latest(spark, query, tree, key)
        return BatchAnswer(frame=frame, late=(), caveats=(*uncertain, *untraced))
    evict_ms = prefix.watermarks[prefix.through].evict_ms
    evicted: tuple[int, ...] = ()
    if evict_ms > 0 and any(operator.kind == "Join" for operator in known):
        evicted = evictions(spark, optimised, evict_ms)
    rewriting = Rewriting(
        spark=spark,
        query=query,
        steps=steps(tree, known, evicted if len(evicted) == len(known) else (evict_ms,) * len(known)),
        replayed=-1 if replayed is None else replayed,
        named=prefix.named,
    )
    found = rewriting.of(tree)
    return BatchAnswer(
        frame=plans.select_only(spark, plans.frame_of(spark, found.plan), plans.attributes(tree.plan)),
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
        plan = plans.inline_ctes(spark, analysed_plan(frame))
        known = {source.name: source for source in project.sources_of(query)}
        plan = source_uses.replace_repeated_sources(
            spark, plan, lambda name, use: share.read(spark, known[name], dated=dated, use=use), share.sources
        )
        return plans.frame_of(spark, plan), plans.batch_tree(plan)

    if len(over.all) == 1:
        return *over_part(prefix, over.last), over.caveats
    try:
        parts = [over_part(prefix.part(range_.first, range_.last), range_) for range_ in over.all]
        plan, differs = united(spark, [tree for _, tree in parts])
    except (CheckFailed, OtherShapeError):
        changed = Finding(
            code="HR567",
            what=f"query '{query.name}' is not the same query over an older version of its tables",
            fix="let the tables keep their columns, or reset the query (headrace reset QUERY)",
            where=query.where,
        )
        return *over_part(prefix, over.last), (*over.caveats, changed)
    caveats = list(over.caveats)
    if differs and query.mode != "complete":
        # The table is joined with results that change, of which only the last version can be determined.
        what = f"query '{query.name}' joins a refreshed table behind an operator with state: which version a row of "
        what += "the result has seen cannot be determined from outside"
        fix = "join the table before rows are grouped, or look at the differing rows below"
        caveats.append(late_and_open.undetermined(query, what, fix, by_rerun=False))
    return plans.frame_of(spark, plan), plans.batch_tree(plan), tuple(caveats)
