"""What a query's sources still hold that no batch of it has taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.prefix import committed_prefix
from headrace.checkpoint.uses import further_uses, source_of
from headrace.contract import Lag, SourcePrefix, overrides
from headrace.errors import Finding, HeadraceError
from headrace.model import Project, Query, Source
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord


def lag(project: Project, query: Query, layout: QueryLayout) -> Lag | None:
    """The sum over the sources of `query`, without a JVM; None where one of them cannot tell or counts otherwise."""
    return total(lags(project, query, layout))


def lags(project: Project, query: Query, layout: QueryLayout) -> dict[str, Lag | None]:
    """What each source of `query` still holds; None where it cannot tell, and nothing where that cannot be read.

    Of a source that the query reads in several places, what waits for the place that has taken the least.
    """
    sources = project.sources_of(query)
    try:
        prefixes = _reached(layout, [source.name for source in sources])
        further = further_uses((source.name for source in sources), prefixes)
        return {source.name: _lag_of(source, prefixes, further) for source in sources}
    except (HeadraceError, OSError):
        return {}


def reported_lags(project: Project, query: Query, record: BatchRecord) -> dict[str, Lag]:
    """The same as Spark's report of a batch tells it, without asking anybody; of sources that know to read it."""
    found: dict[str, Lag] = {}
    sources = {source.name: source.connector for source in project.sources_of(query)}
    for progress in record.sources:
        name = source_of(progress.name)
        if name not in sources or progress.end is None or progress.latest is None:
            continue
        lag = sources[name].reported_lag(progress.end, progress.latest)
        if lag is not None and (name not in found or found[name].count < lag.count):
            found[name] = lag
    return found


def total(parts: Mapping[str, Lag | None]) -> Lag | None:
    """The sum; None where one part is not known, or they count different things."""
    known = [part for part in parts.values() if part is not None]
    if not known or len(known) < len(parts) or len({part.unit for part in known}) > 1:
        return None
    sizes = [part.bytes for part in known if part.bytes is not None]
    return Lag(
        count=sum(part.count for part in known),
        unit=known[0].unit,
        bytes=sum(sizes) if len(sizes) == len(known) else None,
        left_out=sum(part.left_out for part in known),
    )


def _lag_of(source: Source, prefixes: Mapping[str, SourcePrefix], further: Sequence[str]) -> Lag | None:
    uses = (source.name, *(use for use in further if source_of(use) == source.name))
    found = [source.connector.lag(prefixes[use]) for use in uses]
    known = [each for each in found if each is not None]
    return max(known, key=lambda each: each.count) if len(known) == len(found) else None


def left_out(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """What the sources of `query` hold and will never give, without a JVM."""
    sources = project.sources_of(query)
    if not any(overrides(source.connector, "left_out") for source in sources):
        return
    try:
        prefixes = _reached(layout, [source.name for source in sources])
        found = [(source, source.connector.left_out(prefixes[source.name])) for source in sources]
    except (HeadraceError, OSError):
        return
    for source, problem in found:
        if problem is not None:
            yield Finding(
                code=problem.code,
                what=f"source '{source.name}': {problem.what}",
                fix=problem.fix,
                where=source.where,
                severity=problem.severity,
            )


def _reached(layout: QueryLayout, names: list[str]) -> dict[str, SourcePrefix]:
    """How far each of the sources was read: the newest committed batch alone.

    All batches since the first would be read from the archive, which takes seconds after a day of a batch a second.
    """
    checkpoint = Checkpoint(layout.checkpoint)
    through = checkpoint.last_committed
    if through is None:
        return {name: SourcePrefix(batches=()) for name in names}
    return committed_prefix(checkpoint, Archive(layout.archive), names, through, since=through)


def committed_prefixes(layout: QueryLayout, names: list[str]) -> dict[str, SourcePrefix]:
    """What each of the sources has given to the batches that are committed."""
    checkpoint = Checkpoint(layout.checkpoint)
    through = checkpoint.last_committed
    if through is None:
        return {name: SourcePrefix(batches=()) for name in names}
    return committed_prefix(checkpoint, Archive(layout.archive), names, through)
