"""Tables that are recomputed while a query runs, in queries that cannot go over from one version to the next."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import Finding
from headrace.model import Continuous, Project, Query, RealTime, Trigger

SHORTEST_SECONDS = 1.0


def intervals(project: Project) -> Iterator[Finding]:
    """Tables that would be recomputed without a pause."""
    for name, table in project.tables.items():
        if table.refresh is not None and table.refresh.seconds < SHORTEST_SECONDS:
            yield Finding(
                code="HR290",
                what=f"{table.word} '{name}' is to be refreshed every {table.refresh}, and the least is 1 second",
                fix="write refresh: 1 second or longer; a table that changes all the time is a source",
                where=table.where,
            )


def refreshed(project: Project, query: Query, trigger: Trigger) -> Iterator[Finding]:
    """Why `query` cannot be halted between two batches and continue with another version of a table.

    A run that ends by itself keeps the version that it began with, so nothing is asked of it.
    """
    tables = project.refreshed_tables_of(query)
    if not tables or trigger.ends:
        return
    whose = f"query '{query.name}' reads the {tables[0].word} '{tables[0].name}', which is refreshed while it runs,"
    without = f"leave the {tables[0].word}'s refresh out"
    if isinstance(trigger, (Continuous, RealTime)):
        yield Finding(
            code="HR291",
            what=f"{whose} and has the trigger {trigger}, which makes no batches for it to change between",
            fix=f"use the trigger every('1 second'), or {without}",
            where=query.where,
        )
    if not query.sink.facts.durable:
        yield Finding(
            code="HR292",
            what=f"{whose} and the sink {query.sink_kind} keeps nothing that a query could resume from",
            fix=f"use a sink that lasts, such as files or sqlite, or {without}",
            where=query.where,
        )
    if query.sink.facts.async_progress:
        yield Finding(
            code="HR292",
            what=f"{whose} and has async_progress, so that batches would come again after each refresh",
            fix=f"leave async_progress out, or {without}",
            where=query.where,
        )
    for source in project.sources_of(query):
        if source.connector.facts.ephemeral:
            yield Finding(
                code="HR293",
                what=f"{whose} and the source '{source.name}' cannot resume from where the query halted",
                fix=f"read from a source that keeps its rows, or {without}",
                where=query.where,
            )


def without_supervisor(project: Project, query: Query, trigger: Trigger) -> Iterator[Finding]:
    """What a query cannot have where nobody stands by that could halt it: in the user's own session."""
    tables = project.refreshed_tables_of(query)
    if tables and not trigger.ends:
        yield Finding(
            code="HR294",
            what=f"query '{query.name}' is started in a session of your own, where its {tables[0].word} "
            f"'{tables[0].name}' cannot be refreshed while it runs",
            fix="run it by headrace.run(project, spark=spark), or leave its refresh out",
            where=query.where,
        )
