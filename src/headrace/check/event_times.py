"""The rule that what an operator with state reads has one event-time column, which Spark checks only while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.errors import Finding
from headrace.model import Query
from headrace.spark.event_times import stateful_inputs


def event_times(query: Query, optimised: Any) -> Iterator[Finding]:
    """Operators of an optimised plan that Spark would refuse in the first batch."""
    for each in stateful_inputs(optimised, complete=query.mode == "complete"):
        if len(each.columns) > 1:
            yield Finding(
                code="HR279",
                what=f"query '{query.name}' gives an operator with state ({each.operator}) rows with "
                f"{len(each.columns)} event-time columns: {', '.join(each.columns)}",
                fix="leave one of them: select only the column, or the window, that the operator goes by, or cast "
                "the other to STRING",
                where=query.where,
            )
