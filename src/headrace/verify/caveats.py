"""Why a difference from the batch answer does not always prove the sink wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.operators import ARBITRARY_STATE, LIMITS, Operator
from headrace.spark.plan_rewrite import Tree
from headrace.spark.plans import asked_clocks, plan_facts
from headrace.spark.row_order import by_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What another run over the same batches settles.
SETTLED_BY_RERUN = frozenset({"HR706", "HR707", "HR708", "HR716", "HR717", "HR718"})
# Among them, what may be otherwise in that run too, because rows of one batch have no order.
BY_ORDER = frozenset({"HR708", "HR716", "HR717"})


def of_plan(query: Query, stream: DataFrame, tree: Tree, operators: tuple[Operator, ...]) -> Iterator[Finding]:
    """The caveats that the query's own plan raises."""
    yield from _asked_again(query, stream, tree)
    for operator in operators:
        if operator.by_order:
            yield Finding(
                code="HR708",
                what=f"query '{query.name}' keeps the duplicate that came first, and a batch knows no order",
                fix="drop duplicates by every column that is used afterwards, so that they do not differ",
                where=query.where,
            )
        if operator.kind == "Join" or any(each in operator.kind for each in ARBITRARY_STATE):
            yield Finding(
                code="HR706",
                what=f"what {_words(operator.kind)} drops, or has not given out yet, cannot be determined from outside",
                fix="compare the differing rows below by hand",
                where=query.where,
            )
    for name in dict.fromkeys(node.name for node in tree.walk() if node.name in LIMITS):
        yield Finding(
            code="HR717",
            what=f"query '{query.name}' takes the first rows only ({name}), and equal rows have no order",
            fix="sort by enough columns, or take the first rows where the result is read",
            where=query.where,
        )


def other_shape(query: Query) -> Finding:
    """The function built another plan for the batch than for the stream."""
    return Finding(
        code="HR710",
        what=f"query '{query.name}' is another query when it is applied to a batch",
        fix="do not let the function ask whether its input is a stream",
        where=query.where,
    )


def untraceable(query: Query, node: str) -> Finding:
    """Rows pass through something that cannot tell which batch they came in."""
    return Finding(
        code="HR718",
        what=f"rows of query '{query.name}' pass through {node}, behind which it cannot be determined which came late",
        fix="use column expressions there, or judge the differing rows by hand",
        where=query.where,
    )


def revived_sessions(query: Query, rows: int) -> Finding:
    """A row was in time, but the session that it would have prolonged was closed."""
    return Finding(
        code="HR707",
        what=f"{rows} rows in time for a session of their own may have missed one that was closed already",
        fix="allow more delay in the source's watermark; compare the differing sessions below by hand",
        where=query.where,
    )


def unfit_key(query: Query, key: tuple[str, ...], rows: int) -> Finding:
    """The sink keeps one row where the answer has several."""
    return Finding(
        code="HR709",
        what=f"{rows} rows of query '{query.name}' share their key ({', '.join(key)}) with another row of the answer",
        fix="choose columns as the sink's key that identify a row of the result",
        where=query.where,
    )


def order_of_rows(query: Query, of: str) -> Finding:
    """What the batch answer gives depends on which row comes first."""
    return Finding(
        code="HR716",
        what=f"what query '{query.name}' gives depends on the order in which rows come: {of}",
        fix="sort what is collected, or choose by columns in which no two rows are equal",
        where=query.where,
    )


def _asked_again(query: Query, stream: DataFrame, tree: Tree) -> Iterator[Finding]:
    facts = plan_facts(stream)
    by_clock = ["timeouts by the clock"] if facts.by_clock else []
    found = list(dict.fromkeys([*facts.indeterminate, *asked_clocks(stream, tree.plan), *by_clock]))
    if found:
        yield Finding(
            code="HR705",
            what=f"query '{query.name}' may answer otherwise when it is asked again: {', '.join(found[:3])}",
            fix="compute the value from the row's own columns",
            where=query.where,
        )
    if ordered := by_order(tree):
        yield order_of_rows(query, ", ".join(ordered[:3]))


def _words(kind: str) -> str:
    return "a join of two streams" if kind == "Join" else "an operator with a state of its own"
