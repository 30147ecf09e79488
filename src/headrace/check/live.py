"""Sources that give only what comes while the query runs, in queries that ask more of them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import Finding
from headrace.model import Project, Query, Trigger


def live(project: Project, query: Query, trigger: Trigger, *, begun: bool = False) -> Iterator[Finding]:
    """What `query` cannot do with its live sources; `begun`: its checkpoint has batches already."""
    for source in project.sources_of(query):
        if not source.connector.facts.ephemeral:
            continue
        if trigger.ends:
            yield Finding(
                code="HR320",
                what=f"query '{query.name}' ends by itself, and the source '{source.name}' gives only what comes while "
                "it runs: it would end with nothing",
                fix="use the trigger default or every",
                where=query.where,
            )
        if begun:
            yield Finding(
                code="HR320",
                what=f"query '{query.name}' has run before, and the source '{source.name}' cannot resume from its "
                "checkpoint",
                fix="reset the query (headrace reset QUERY), or read from a source that keeps its rows; a sink that "
                "keeps nothing, such "
                "as console, needs no checkpoint",
                where=query.where,
            )
