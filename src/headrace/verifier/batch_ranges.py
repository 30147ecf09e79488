"""The ranges of a query's batches: over the same versions of its tables, with one plan over all, and of one form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import CheckFailed, Finding
from headrace.frames.tables import Tables, TableVersions, Use, in_force
from headrace.generations.log import QueryLayout
from headrace.generations.manifest import QueryForm, QueryRevision, forms
from headrace.model import Project, Query
from headrace.planner.comparison import compare_forms as compare_forms
from headrace.planner.difference import worst
from headrace.spark.plans import plan_rewrite as plans
from headrace.spark.plans.analysed import analysed_plan
from headrace.spark.plans.operators import stateful
from headrace.spark.plans.plan_rewrite import Tree
from headrace.verifier.late_and_open import doubt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class OtherShapeError(Exception):
    """The query's plan is not the same over each version of a table."""


@dataclass(frozen=True, kw_only=True)
class VersionRange:
    """The batches `first` to `last`, and the tables as they were then."""

    first: int
    last: int
    tables: Mapping[str, DataFrame]


@dataclass(frozen=True, kw_only=True)
class VersionRanges:
    """All batches of a prefix, in order, and what is not certain about their tables."""

    all: tuple[VersionRange, ...]
    caveats: tuple[Finding, ...] = ()

    @property
    def last(self) -> VersionRange:
        """The newest one."""
        return self.all[-1]


def version_ranges(
    project: Project, query: Query, layout: QueryLayout, through: int, spark: SparkSession, *, since: int = 0
) -> VersionRanges:
    """Return the ranges of the batches `since` to `through`; a single one for a query without refreshed tables.

    Raises CheckFailed when a version that some batch was made with was removed.
    """
    tables = Tables(project, query, layout, spark)
    if not tables.declared:
        return VersionRanges(all=(VersionRange(first=0, last=through, tables={}),))
    parts = [part for part in _parts(tables.record, through, frozenset(tables.declared)) if part[1] >= since]
    recorded = [part for part in parts if part[2]]
    if not recorded:
        return VersionRanges(
            all=(VersionRange(first=0, last=through, tables={}),), caveats=(_unknown_versions(query, through),)
        )
    for first, last, versions in recorded:
        if gone := tables.missing_versions(versions):
            raise CheckFailed(
                code="HR563",
                what=f"the version of table '{gone[0]}' that query '{query.name}' made the batches {first} to {last} "
                "with was removed",
                fix="verify sooner, or refresh more seldom: older versions are removed",
                where=query.where,
            )
    caveats = (_unknown_versions(query, parts[0][1]),) if not parts[0][2] else ()
    if caveats:
        parts[0] = (*parts[0][:2], recorded[0][2])
    return VersionRanges(
        all=tuple(
            VersionRange(first=first, last=last, tables=tables.frames(versions)) for first, last, versions in parts
        ),
        caveats=caveats,
    )


def _parts(record: TableVersions, through: int, names: frozenset[str]) -> Iterator[tuple[int, int, dict[str, int]]]:
    """Yield the first and the last batch of each range and its versions; none where not all of them are known."""
    uses = record.uses()
    first, before = 0, _known_versions(uses, 0, names)
    for batch in sorted({use.from_batch for use in uses if 0 < use.from_batch <= through}):
        versions = _known_versions(uses, batch, names)
        if versions != before:
            yield first, batch - 1, before
            first, before = batch, versions
    yield first, through, before


def _known_versions(uses: Sequence[Use], batch: int, names: frozenset[str]) -> dict[str, int]:
    versions = in_force(uses, batch)
    return {name: versions[name] for name in names} if names <= versions.keys() else {}


def unite(spark: SparkSession, trees: Sequence[Tree]) -> tuple[Any, bool]:
    """Return one plan over the plans of all ranges, oldest first, and whether they differ above the state.

    Without state each batch is answered by itself; so what lies below the first operator with state is united, range
    by range. What is joined above is there in its last version. Raises OtherShapeError.
    """
    base = trees[-1]
    if len({(tree.name, len(tree.below), tree.from_source) for tree in trees}) > 1:
        raise OtherShapeError(base.name)
    if not base.from_source:
        return base.plan, not all(plans.same_result(base.plan, tree.plan) for tree in trees)
    if not any(stateful(base)):
        return _union(spark, trees), False
    parts = [unite(spark, sides) for sides in zip(*(tree.below for tree in trees), strict=True)]
    plan = plans.with_children(spark, base.plan, [part for part, _ in parts])
    return plan, plans.has_subqueries(base.plan) or any(differs for _, differs in parts)


def _union(spark: SparkSession, trees: Sequence[Tree]) -> Any:
    """Return the rows of all, under the attributes of the last."""
    base, *others = (plans.frame_of(spark, tree.plan) for tree in reversed(trees))
    for other in others:
        if [(field.name, field.dataType) for field in other.schema] != [
            (field.name, field.dataType) for field in base.schema
        ]:
            raise OtherShapeError("Union")
        base = base.union(other)
    return analysed_plan(base)


def _unknown_versions(query: Query, last: int) -> Finding:
    problem = f"the tables of query '{query.name}' were not kept yet when it made the batches up to {last}"
    return doubt(query, problem, "look whether the differing rows below are of those batches", by_rerun=False)


@dataclass(frozen=True, kw_only=True)
class Range:
    """The batches `first` to `last`; newest: the form that ran last made them, now or at an earlier time."""

    first: int
    last: int
    newest: bool

    def __str__(self) -> str:
        return f"batch {self.first}" if self.first == self.last else f"batches {self.first} to {self.last}"


def ranges_of(layout: QueryLayout, through: int) -> tuple[Range, ...]:
    """Return the ranges of the batches 0 to `through`, by the manifest; one, where the query was never changed."""
    revisions = [revision for revision in forms(layout.manifest) if revision.from_batch <= through]
    if not revisions:
        return (Range(first=0, last=through, newest=True),)
    merged: list[Range] = []
    for index, form in enumerate(revisions):
        first = form.from_batch if merged else 0
        last = revisions[index + 1].from_batch - 1 if index + 1 < len(revisions) else through
        if last < first:
            continue
        newest = is_same_query(_last_of_same(revisions, index), revisions[-1])
        if merged and merged[-1].newest and newest:
            first = merged.pop().first
        merged.append(Range(first=first, last=last, newest=newest))
    return tuple(merged)


def _last_of_same(revisions: Sequence[QueryRevision], index: int) -> QueryRevision:
    """Return the last of the forms that differ from this one only by names of sources."""
    while index + 1 < len(revisions) and revisions[index + 1].continues:
        index += 1
    return revisions[index]


def is_same_query(one: QueryRevision, other: QueryRevision) -> bool:
    """Whether two forms are the same query; of a plan that could not be read only a digest is known."""
    if one.form is not None and other.form is not None:
        try:
            forms_of_both = QueryForm.of(one.form), QueryForm.of(other.form)
        except (TypeError, KeyError, ValueError):
            return False  # Of a newer version, or damaged: nothing is proved by it.
        if not any(form.unreadable for form in forms_of_both):
            return worst(compare_forms(*forms_of_both)) in ("same", "safe")
    by_spark = one.spark != other.spark and one.shape is not None and one.shape == other.shape
    return one.fingerprint == other.fingerprint or by_spark


def report_several_forms(query: Query, parts: Sequence[Range], rest: str = "") -> Finding:
    """Return the finding for batches that another form of the query made; `rest`: what follows from it."""
    older = " and ".join(str(part) for part in parts if not part.newest)
    return Finding(
        code="HR650",
        what=f"{older} of query '{query.name}' were made by another form of it{rest}",
        fix="reset the query (headrace reset QUERY), which reads its sources again, if all rows are to mean the same",
        where=query.where,
    )
