"""The ranges of batches that one form of a query made, and what can be proved where several forms made a result.

The rows of an older form cannot be computed: the project holds the query as it is now. Where no state carries from
batch to batch, those of the newest form can, and they must all be there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from headrace.errors import Finding
from headrace.model import Query
from headrace.model.layout import QueryLayout
from headrace.plan.comparison import compare as compare_forms
from headrace.plan.difference import worst
from headrace.plan.form import QueryForm
from headrace.plan.manifest import QueryRevision, forms
from headrace.verify.comparison import compare
from headrace.verify.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.contract import Snapshot
    from headrace.verify.answer import Answer


@dataclass(frozen=True, kw_only=True)
class Range:
    """The batches `first` to `last`; newest: the form that ran last made them, now or at an earlier time."""

    first: int
    last: int
    newest: bool

    def __str__(self) -> str:
        return f"batch {self.first}" if self.first == self.last else f"batches {self.first} to {self.last}"


def ranges(layout: QueryLayout, through: int) -> tuple[Range, ...]:
    """The ranges of the batches 0 to `through`, by the manifest; one, where the query was never changed."""
    known = [each for each in forms(layout.manifest) if each.from_batch <= through]
    if not known:
        return (Range(first=0, last=through, newest=True),)
    found: list[Range] = []
    for index, form in enumerate(known):
        first = form.from_batch if found else 0
        last = known[index + 1].from_batch - 1 if index + 1 < len(known) else through
        if last < first:
            continue
        newest = means_the_same(_continued(known, index), known[-1])
        if found and found[-1].newest and newest:
            first = found.pop().first
        found.append(Range(first=first, last=last, newest=newest))
    return tuple(found)


def _continued(known: Sequence[QueryRevision], index: int) -> QueryRevision:
    """The last of the forms that differ from this one by names of sources alone."""
    while index + 1 < len(known) and known[index + 1].continues:
        index += 1
    return known[index]


def means_the_same(one: QueryRevision, other: QueryRevision) -> bool:
    """Whether two forms are one query; an older version kept only a digest of its plan, as its Spark wrote it."""
    if one.form is not None and other.form is not None:
        try:
            forms_of_both = QueryForm.of(one.form), QueryForm.of(other.form)
        except (TypeError, KeyError, ValueError):
            return False  # Of a newer version, or damaged: nothing is proved by it.
        if not any(each.unreadable for each in forms_of_both):
            return worst(compare_forms(*forms_of_both)) in ("same", "safe")
    by_spark = one.spark != other.spark and one.shape is not None and one.shape == other.shape
    return one.fingerprint == other.fingerprint or by_spark


def verdict_by_ranges(
    query: Query,
    verdict: Verdict,
    snapshot: Snapshot,
    parts: Sequence[Range],
    answered: Callable[[Range], Answer],
) -> Verdict:
    """What can be said of a result that several forms made and that is not the answer of the newest one.

    answered: the answer of the query as it is now over the batches of a range.
    """
    own = [each for each in parts if each.newest]
    if query.mode == "update":
        # A later batch may have replaced what an earlier one gave.
        own = own[-1:]
    answers = [] if query.mode == "complete" else [answered(each) for each in own]
    if not answers or any(each.operators for each in answers):
        because = ", and its state carries from batch to batch, so that no range can be judged by itself"
        return replace(verdict, state="undecided", findings=(of_several_forms(query, parts, because),))
    rows: DataFrame = reduce(lambda one, other: one.unionByName(other), (each.frame for each in answers))
    found = compare(rows, snapshot.rows, snapshot.key, snapshot.rejected)
    lacking, judged = found.missing + found.different, " and ".join(map(str, own))
    verdict = replace(
        verdict,
        rows_expected=found.rows_expected,
        rows_actual=found.rows_actual,
        rows_set_aside=found.rejected,
        missing=found.missing,
        different=found.different,
        unexpected=0,
        differences=tuple(each for each in found.differences if each.kind != "unexpected"),
    )
    if lacking:
        return replace(verdict, state="mismatch", findings=(_lacking(query, lacking, judged),))
    rest = f", which cannot be computed again; what {judged} gave is all there"
    return replace(verdict, state="undecided", findings=(of_several_forms(query, parts, rest),))


def of_several_forms(query: Query, parts: Sequence[Range], rest: str = "") -> Finding:
    """That some batches were made by another form of the query; `rest`: what follows from it."""
    older = " and ".join(str(each) for each in parts if not each.newest)
    return Finding(
        code="HR650",
        what=f"{older} of query '{query.name}' were made by another form of it{rest}",
        fix="reset the query (headrace reset QUERY), which reads its sources again, if all rows are to mean the same",
        where=query.where,
    )


def _lacking(query: Query, rows: int, judged: str) -> Finding:
    return Finding(
        code="HR712",
        what=f"of what {judged} gave, {rows} rows are missing in the sink or have other values",
        fix="look at the rows below; if nothing else writes to the sink, reset the query (headrace reset QUERY)",
        where=query.where,
    )
