"""How far the sources of a query reach back: what of its past a rebuild would be given once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.contract import SourcePrefix
from headrace.errors import HeadraceError
from headrace.model import NamedSource, Project, Query
from headrace.observe.lag import committed_prefixes
from headrace.queries.blame import named
from headrace.queries.layout import QueryLayout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def gone(project: Project, query: Query, layout: QueryLayout, spark: SparkSession) -> Iterator[str]:
    """What the generation in `layout` has read and a new one would not be given, a sentence for each source."""
    sources = project.sources_of(query)
    try:
        prefixes = committed_prefixes(layout, [source.name for source in sources])
    except HeadraceError as error:
        yield f"what the query has read so far is not known any more: {error.findings[0].what}"
        return
    for source in sources:
        with named(f"query '{query.name}', source '{source.name}'", source.where):
            missing = source.connector.unreachable(spark, prefixes[source.name])
        if missing:
            yield f"source '{source.name}': {missing}"


def sources_beside(
    project: Project, query: Query, layout: QueryLayout, since: datetime | None, spark: SparkSession
) -> dict[str, NamedSource]:
    """The sources of `query`, each beginning where the generation in `layout` began, or with what came `since`."""
    sources = project.sources_of(query)
    try:
        prefixes = committed_prefixes(layout, [source.name for source in sources])
    except HeadraceError:
        prefixes = {source.name: SourcePrefix(batches=()) for source in sources}
    found = {}
    for source in sources:
        with named(f"query '{query.name}', source '{source.name}'", source.where):
            connector = source.connector.since(spark, prefixes[source.name])
            from_time = None if since is None else connector.since_time(spark, since)
        found[source.name] = replace(source, connector=from_time or connector)
    return found


def timeless(project: Project, query: Query, since: datetime, spark: SparkSession) -> list[str]:
    """The sources of `query` that cannot begin at a time."""
    sources = project.sources_of(query)
    return [source.name for source in sources if source.connector.since_time(spark, since) is None]
