"""What is wrong with the sink of a query's late rows, seen without Spark."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.check.locations import is_same_place
from headrace.errors import Finding
from headrace.model import Project, Query


def late_rows(project: Project) -> Iterator[Finding]:
    """Why late rows cannot be kept, each exactly once, where a query asks for it."""
    for query in project.queries.values():
        late = project.queries.get(query.late or "")
        for why, fix in _faults(project, query, late) if late is not None else ():
            what = f"late rows of query '{query.name}' cannot be kept: {why}"
            yield Finding(code="HR268", what=what, fix=fix, where=query.where)


def _faults(project: Project, query: Query, late: Query) -> Iterator[tuple[str, str]]:
    facts, place = late.sink.facts, late.sink.identity()
    if not (facts.durable and (facts.transactional or facts.idempotent)):
        fix = "use a database, files, delta, iceberg, or kafka with delivery_guarantee: exactly-once"
        yield f"a row may come twice into the sink {late.sink_kind}, or is not kept there", fix
    # Where appends are not shared, two queries that write to one place are refused as such.
    if facts.shares_appends and query.mode == "append" and is_same_place(place, query.sink.identity()):
        yield "their sink writes to the place of the result", "give them a table, a directory or a topic of their own"
    if not query.sink.facts.durable:
        why = f"the query's own sink {query.sink_kind} keeps nothing, so that each start reads all rows again"
        yield why, "use a sink that lasts, such as files or sqlite, or leave late out"
    for source in project.sources_of(query):
        connector = source.connector
        if not (connector.facts.replayable and connector.readable_as_batch):
            why = f"which rows are late is told by reading them again, and source '{source.name}' does not keep them"
            yield why, "read from a source that keeps its rows, or leave late out"
        if is_same_place(place, connector.identity()):
            why = f"source '{source.name}' reads what their sink writes, so that they would come again"
            yield why, "give them a table, a directory or a topic of their own"
