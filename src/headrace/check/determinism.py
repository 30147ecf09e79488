"""What a result depends on beside its rows, and what that does to exactly once and to verify."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.check.user_functions import Asked
from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.determinism import Determinism
from headrace.spark.plans import PlanFacts

_AT_LEAST_ONCE = "a batch that is made again after a crash may give other rows, and verify cannot prove the result"


def chance(query: Query, facts: PlanFacts) -> Iterator[Finding]:
    """Expressions that Spark itself knows to answer otherwise each time."""
    if facts.indeterminate:
        yield Finding(
            code="HR241",
            what=f"query '{query.name}' is not deterministic: {', '.join(facts.indeterminate[:3])}: {_AT_LEAST_ONCE}",
            fix="compute it from the row's own columns, so that a batch made again after a crash gives the same rows; "
            "for the time of the batch write current_timestamp()",
            where=query.where,
        )


def clock_and_order(query: Query, facts: PlanFacts, found: Determinism) -> Iterator[Finding]:
    """What leaves exactly once as it is, and is no answer that another run would give."""
    if clocks := [each for each in found.clocks if each not in facts.indeterminate]:
        yield Finding(
            code="HR640",
            what=f"query '{query.name}' asks for the time by {', '.join(clocks[:3])}: a batch that is made again keeps "
            "its time, so that it stays exactly once, but verify cannot compute it again",
            fix="where verify is to prove the result, take the time from a column of the source",
            where=query.where,
        )
    ordered = [*found.by_order, *found.limits]
    if ordered:
        yield Finding(
            code="HR641",
            what=f"query '{query.name}' depends on the order in which rows come, by {', '.join(ordered[:3])}: each row "
            "is counted once, but a batch that is made again may give another value, and verify judges by another run",
            fix="sort what is collected (sort_array), or choose and sort by columns in which no two rows are equal",
            where=query.where,
        )


def asked_by_functions(query: Query, asked: Sequence[Asked]) -> Iterator[Finding]:
    """Python functions of the user's that Spark takes for deterministic, and that read a clock or chance."""
    for each in asked:
        if not each.at_build:
            yield Finding(
                code="HR642",
                what=f"the function {each.function} of query '{query.name}' calls {each.call}, so that it is not "
                f"deterministic: {_AT_LEAST_ONCE}",
                fix="compute it from the row's own columns; a number by chance can be a hash of them",
                where=each.where,
            )
