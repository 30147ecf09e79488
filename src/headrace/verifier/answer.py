"""The committed prefix of a query's sources as batch DataFrames, and the batch answer over it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.checkpoint import Archive, BatchWatermarks, Checkpoint, committed_prefix, watermarks
from headrace.checks.change_data import options_of
from headrace.contract import SourcePrefix
from headrace.errors import CheckFailed, Finding
from headrace.frames.change_frames import build_result
from headrace.frames.plan_builder import build
from headrace.generations.facts import read_source_names
from headrace.generations.log import QueryLayout
from headrace.model import NamedSource, Project, Query
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
from headrace.verifier.batch_ranges import OtherShapeError, VersionRange, VersionRanges, unite, version_ranges
from headrace.verifier.changed_table import apply_changes
from headrace.verifier.late_and_open import LateInput, Rewriting, latest_by_key, steps_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Metrics with this prefix count the rows, then those without an event time.
READ = "headrace_prefix_of_"
UNTIMED = 1
_PLACE = "__headrace_place_of_row"
# A reader with the source's schema takes a row that was written with these options for the same row.
ROW_OPTIONS = WHOLE_JSON_UTC


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """What the batches up to `through` of a query read, and the watermarks that they ran under.

    An answer needs all batches from 0 on; to list late rows any first batch will do.

    named: whether each row carries its source, its number there, its file, and itself as JSON (in the hidden column
        ORIGIN).
    traced: whether BATCH is there although no operator needs it.
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
        """Return the prefix of the batches `first` to `last` alone."""
        sources = {
            name: replace(source, batches=tuple(taken for taken in source.batches if first <= taken.batch <= last))
            for name, source in self.sources.items()
        }
        return replace(self, sources=sources, label=f"_from_{first}")

    def read(self, spark: SparkSession, source: NamedSource, *, dated: bool, use: str = "") -> DataFrame:
        """Read the prefix of `source`, marked in its plan; if `dated`, with BATCH and LATE hidden below the mark.

        use: the name of a further use of the source. The observed metric READ + `use` + `label` counts the rows, and
        those without an event time.
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
        # One folded literal, however many batches there are, in place of a join.
        table = F.from_json(F.lit(json.dumps(late)), "array<bigint>")
        if self.timed:
            raw = raw.where(~is_untimed(source))
        counted = raw.observe(
            READ + use + self.label, F.count(F.lit(1)).alias("rows"), F.count_if(is_untimed(source)).alias("untimed")
        )
        rows = counted.withColumn(LATE, F.get(table, F.col(BATCH).cast("int") - first)) if dated else counted
        if dated and self.named:
            line = F.to_json(F.struct(*[F.col(f"`{name}`") for name in visible]), ROW_OPTIONS)
            number = F.monotonically_increasing_id()
            place = F.col(_PLACE).alias("file")
            origin = F.struct(F.lit(use).alias("source"), number.alias("number"), place, line.alias("line"))
            rows = rows.withColumn(ORIGIN, origin)
        return rows.select(*[rows[f"`{name}`"] for name in visible]).alias(MARK + use)


def is_untimed(source: NamedSource) -> Column:
    """Whether a row of a source with a watermark has no event time."""
    from pyspark.sql import functions as F

    return F.lit(False) if source.watermark is None else F.col(source.watermark.column).isNull()


def prefix_of(project: Project, query: Query, layout: QueryLayout, through: int, *, since: int = 0) -> Prefix:
    """Return the committed prefix of `query`: its batches from `since` to `through`.

    Raises CheckpointError when the checkpoint and its archive do not reach that far.
    """
    checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
    names = read_source_names(project, query, layout)
    return Prefix(
        through=through,
        sources=committed_prefix(checkpoint, archive, names, through, since=since),
        watermarks=watermarks(checkpoint, archive, through, since=since),
    )


@dataclass(frozen=True, kw_only=True)
class BatchAnswer:
    """What the sink must hold.

    late: the dropped rows of each operator that can drop any; the metrics LATE_METRIC + index count them.
    caveats: why a difference from the answer would not prove that the sink is wrong.
    incomplete: the caveats because of which `late` lacks rows.
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
        return any(name in operator.kind for operator in self.operators for name in ARBITRARY_STATE)

    @property
    def inner_joins_alone(self) -> bool:
        """Whether the result is made of inner joins of streams, and no other state.

        A pair of rows comes out as soon as both are there, so that the result never holds a row that the batch answer
        lacks; without late rows it lacks none either.
        """
        kinds = {(operator.kind, operator.join) for operator in self.operators}
        return kinds == {("Join", "INNER")}


@dataclass(frozen=True, kw_only=True)
class BatchQuery:
    """A query to be answered as a batch over a committed prefix of its sources.

    versions: of its refreshed tables. key: the columns that identify a row in the sink. replayed: the last batch
    whose late rows were brought back into the result.
    """

    project: Project
    query: Query
    spark: SparkSession
    prefix: Prefix
    versions: VersionRanges
    key: tuple[str, ...] = ()
    replayed: int | None = None

    @classmethod
    def read_committed(
        cls,
        project: Project,
        query: Query,
        layout: QueryLayout,
        spark: SparkSession,
        through: int,
        *,
        since: int = 0,
        key: tuple[str, ...] = (),
        replayed: int | None = None,
    ) -> BatchQuery:
        """Read the prefix of the batches `since` to `through`, and the versions of tables that they saw.

        Raises CheckpointError when the prefix can no longer be read, CheckFailed when a version was removed.
        """
        return cls(
            project=project,
            query=query,
            spark=spark,
            prefix=prefix_of(project, query, layout, through, since=since),
            versions=version_ranges(project, query, layout, through, spark, since=since),
            key=key,
            replayed=replayed,
        )

    def over(self, prefix: Prefix) -> BatchQuery:
        """Return the same query over another part, or with other columns, of its prefix."""
        return replace(self, prefix=prefix)

    def answer(self) -> BatchAnswer:
        """Apply the query's own function to the prefix and leave out late rows and open groups.

        Late rows that were brought back are in the answer. The function is applied twice: to the streams, which are
        never started, to learn from the plan what Spark does with late rows; and to the prefix, whose plan then gets a
        filter below or above those operators.
        """
        answer, condition = self._answer(), self.query.delete_when
        if condition is None:
            return answer
        return replace(answer, frame=answer.frame.where(f"NOT coalesce(({condition}), false)"))

    def _answer(self) -> BatchAnswer:
        query, prefix, spark = self.query, self.prefix, self.spark
        if query.cdc is not None:
            frame = build_result(self.project, query, spark, partial(prefix.read, spark, dated=False)).frame
            return BatchAnswer(
                frame=apply_changes(frame, options_of(self.project, query, query.cdc)), late=(), caveats=()
            )
        stream = build(
            self.project,
            query.transform,
            spark,
            lambda source: source.connector.stream(spark, source.name),
            self.versions.last.tables,
        )
        streaming = plans.inline_ctes(spark, analysed_plan(stream))
        analysed, optimised = (plans.stream_tree(plan) for plan in (streaming, plans.optimise(spark, streaming)))
        stateful_operators = operators(analysed, optimised, complete=query.mode == "complete")
        by_key = not stateful_operators and query.mode == "update" and bool(self.key)
        can_drop = any(column is not None for operator in stateful_operators for column in operator.late)
        batch, tree, caveats = self._over_versions(dated=by_key or prefix.traced or can_drop)
        caveats = (*caveats, *late_and_open.find_caveats(query, stream, analysed, stateful_operators))
        if [kind_of(node) for node in stateful(tree)] != [operator.kind for operator in stateful_operators]:
            shape = query.finding(
                "HR710",
                "is another query when it is applied to a batch",
                "do not let the function ask whether its input is a stream",
            )
            return BatchAnswer(
                frame=batch, late=(), caveats=(*caveats, shape), incomplete=(shape,), operators=stateful_operators
            )
        if by_key:
            frame, untraceable = latest_by_key(spark, query, tree, self.key)
            return BatchAnswer(frame=frame, late=(), caveats=(*caveats, *untraceable))
        evict_ms = prefix.watermarks[prefix.through].evict_ms
        evicted: tuple[int, ...] = ()
        if evict_ms > 0 and any(operator.kind == "Join" for operator in stateful_operators):
            evicted = evictions(spark, optimised, evict_ms)
        if len(evicted) != len(stateful_operators):
            evicted = (evict_ms,) * len(stateful_operators)
        rewriting = Rewriting(
            spark=spark,
            query=query,
            steps=steps_of(tree, stateful_operators, evicted),
            replayed=-1 if self.replayed is None else self.replayed,
            named=prefix.named,
        )
        rewritten = rewriting.rewrite(tree)
        return BatchAnswer(
            frame=plans.select_only(spark, plans.frame_of(spark, rewritten.plan), plans.attributes(tree.plan)),
            late=rewritten.late,
            caveats=(*caveats, *rewritten.incomplete),
            incomplete=rewritten.incomplete,
            operators=stateful_operators,
            by_time=columns_by_time(analysed),
        )

    def _over_versions(self, *, dated: bool) -> tuple[DataFrame, Tree, tuple[Finding, ...]]:
        """Apply the query to each version range with the tables of that time; also return what is uncertain."""
        query, spark, versions = self.query, self.spark, self.versions
        if len(versions.all) == 1:
            return *self._over_version(self.prefix, versions.last, dated=dated), versions.caveats
        try:
            parts = [
                self._over_version(self.prefix.part(version.first, version.last), version, dated=dated)
                for version in versions.all
            ]
            plan, differs = unite(spark, [tree for _, tree in parts])
        except (CheckFailed, OtherShapeError):
            changed = query.finding(
                "HR567",
                "is not the same query over an older version of its tables",
                "let the tables keep their columns, or reset the query (headrace reset QUERY)",
            )
            return *self._over_version(self.prefix, versions.last, dated=dated), (*versions.caveats, changed)
        caveats = versions.caveats
        if differs and query.mode != "complete":
            # The table is joined with results that change, of which only the last version can be determined.
            joined = late_and_open.doubt(
                query,
                f"query '{query.name}' joins a refreshed table behind an operator with state: which version a row of "
                "the result has seen cannot be determined from outside",
                "join the table before rows are grouped, or look at the differing rows below",
                by_rerun=False,
            )
            caveats = (*caveats, joined)
        return plans.frame_of(spark, plan), plans.batch_tree(plan), caveats

    def _over_version(self, prefix: Prefix, version: VersionRange, *, dated: bool) -> tuple[DataFrame, Tree]:
        project, query, spark = self.project, self.query, self.spark
        frame = build(
            project, query.transform, spark, lambda source: prefix.read(spark, source, dated=dated), version.tables
        )
        sources = {source.name: source for source in project.sources_of(query)}
        plan = source_uses.replace_repeated_sources(
            spark,
            plans.inline_ctes(spark, analysed_plan(frame)),
            lambda name, use: prefix.read(spark, sources[name], dated=dated, use=use),
            prefix.sources,
        )
        return plans.frame_of(spark, plan), plans.batch_tree(plan)
