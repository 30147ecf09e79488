"""Findings about transformWithState, which Spark checks only when its first batch runs, or never."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import Finding
from headrace.model import Query
from headrace.model.state_store import PROVIDERS
from headrace.spark.plans import PlanFacts


def processors(query: Query, facts: PlanFacts, provider: str | None) -> Iterator[Finding]:
    """What is wrong with the stateful processors of `query`, whose state `provider` would keep."""
    whose = f"query '{query.name}': transformWithState"
    for processor in facts.processors:
        if processor.mode.lower() != query.mode and query.mode != "complete":
            yield Finding(
                code="HR280",
                what=f"{whose} gives its rows in {processor.mode.lower()} mode, and the query's mode is {query.mode}",
                fix="give both the same mode",
                where=query.where,
            )
        if processor.time == "EventTime" and not processor.has_watermark:
            yield Finding(
                code="HR281",
                what=f"{whose} goes by event time, and no watermark says how far that is",
                fix="give the source a watermark, and keep its column in what is grouped",
                where=query.where,
            )
        if processor.begins_with_stream:
            yield Finding(
                code="HR284",
                what=f"{whose} takes its initial state from a stream",
                fix="take it from a table of the project",
                where=query.where,
            )
        if provider != PROVIDERS["rocksdb"]:
            yield Finding(
                code="HR283",
                what=f"{whose} keeps several states for a key, which RocksDB alone can",
                fix="write state_store: {provider: rocksdb} for this target, or leave the provider out",
                where=query.where,
            )
