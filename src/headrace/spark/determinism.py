"""What of a plan may answer otherwise when it is asked again, as far as Spark's own word does not tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.spark.operators import LIMITS
from headrace.spark.plan_rewrite import stream_tree
from headrace.spark.plans import analysed_plan, asked_clocks, nodes
from headrace.spark.row_order import by_order, may_go_by_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Determinism:
    """What the result of a plan depends on beside its rows, each in Spark's words.

    clocks: expressions that give the time of the batch.
    by_order: aggregates and the like whose value depends on which row comes first.
    limits: operators that keep the first rows alone. A deduplication is none: its duplicates are mostly the same row.
    """

    clocks: tuple[str, ...]
    by_order: tuple[str, ...]
    limits: tuple[str, ...]


def determinism(frame: DataFrame) -> Determinism:
    """Read it off the analysed plan of `frame`."""
    plan = analysed_plan(frame)
    asked = asked_clocks(frame, plan)
    names = {str(node.nodeName()) for node in nodes(plan)}
    if names.isdisjoint(LIMITS) and not ("Aggregate" in names and may_go_by_order(plan)):
        return Determinism(clocks=asked, by_order=(), limits=())
    tree = stream_tree(plan)
    limited = any(node.name in LIMITS and node.from_source for node in tree.walk())
    return Determinism(clocks=asked, by_order=by_order(tree), limits=("limit",) if limited else ())
