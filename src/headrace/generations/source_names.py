"""The record of what Spark calls each source of a query, which makes the rename of a source one write."""

from __future__ import annotations

import json
from collections.abc import Iterator

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.sources import SourceNames, source_of
from headrace.errors import CheckpointError, Finding
from headrace.generations.log import QueryLayout
from headrace.generations.register import renaming
from headrace.model import NamedSource, Project, Query
from headrace.storage import json_record
from headrace.storage.durable import replace_file
from headrace.storage.private import writing_to


def read_source_names(project: Project, query: Query, layout: QueryLayout) -> SourceNames:
    """Return what Spark calls the sources of `query`, renamed ones included that no start has recorded yet.

    A source whose name Spark knows as that of another one gets a number. Raises CheckpointError for a damaged record,
    and for a source of which it does not say which former one it continues.
    """
    names, sources = dict(_read(layout)), project.sources_of(query)
    for source in sources:
        if source.name not in names:
            former = _former(query, source, names)
            names[source.name] = _free(source.name, names) if former is None else names.pop(former)
    return SourceNames(names, tuple(source.name for source in sources))


def write_source_names(layout: QueryLayout, names: SourceNames) -> None:
    """Keep the names before the first batch that is planned under them. Raises PlatformError."""
    if _read_record(layout) != names.by_name:
        with writing_to(layout.home):
            replace_file(layout.source_names, json.dumps(names.by_name) + "\n")


def list_source_renames(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """Yield what the next start of `query` renames. Raises CheckpointError, as `read_source_names`."""
    names = _read(layout)
    for source in project.sources_of(query):
        if source.name not in names and (former := _former(query, source, names)) is not None:
            fault = f"source '{former}' of query '{query.name}' is renamed to '{source.name}', and resumes at the same "
            yield renaming(f"{fault}offsets", source.where)


def _read(layout: QueryLayout) -> dict[str, str]:
    """Return Spark's names by those of the last start; an adopted checkpoint has no record, and the names of now."""
    recorded = _read_record(layout)
    if recorded is not None:
        return recorded
    checkpoint = Checkpoint(layout.checkpoint)
    last = checkpoint.last_batch
    entry = None if last is None else checkpoint.offset(last)
    uses = entry.offsets if entry is not None and entry.version > 1 else ()  # Else they have numbers.
    return {source_of(use): source_of(use) for use in uses}


def _read_record(layout: QueryLayout) -> dict[str, str] | None:
    damaged = json_record.Damaged(
        file=layout.source_names,
        code="HR584",
        what="the record of what Spark calls the sources of the query cannot be read",
        fix="restore it from a backup; or, if none was ever renamed, remove it: a new one is begun",
    )
    return json_record.read(
        layout.source_names, lambda facts: {str(name): str(first) for name, first in facts.items()}, damaged
    )


def _former(query: Query, source: NamedSource, names: dict[str, str]) -> str | None:
    """Return the former name of a source that is new in `names`, by which they know it."""
    formers = [name for name in source.renamed_from if name in names]
    if len(formers) > 1:
        fault = f"source '{source.name}' is renamed from '{formers[0]}' and from '{formers[1]}', and query "
        fault += f"'{query.name}' has read both"
        fix = "name the one in renamed_from whose rows it continues"
        raise CheckpointError(code="HR549", what=fault, fix=fix, where=source.where)
    return formers[0] if formers else None


def _free(name: str, names: dict[str, str]) -> str:
    """Return a name of Spark's that no other source has, or had before it was renamed."""
    taken, number, free = set(names.values()), 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
