"""What the next start renames: a query, its table, its sources; and the record of sources that are being renamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.sources import source_of
from headrace.errors import CheckpointError, Finding, Where
from headrace.model import NamedSource, Project, Query
from headrace.queries.identity import renaming, waiting_rename
from headrace.queries.layout import QueryLayout, layout_of
from headrace.queries.location import table_before
from headrace.queries.manifest import forms
from headrace.storage import json_record
from headrace.storage.durable import replace_file


def former_sources(project: Project, query: Query, layout: QueryLayout) -> dict[str, str]:
    """The sources that the last form in the manifest knows by another name: that name by the present one."""
    sources = _renamed(project, query)
    known = forms(layout.manifest)[-1:] if sources else []
    told = known[0].form if known else None
    names = set(told["sources"]) if told is not None and isinstance(told.get("sources"), dict) else set()
    found = {source.name: _one_of(query, source, names) for source in sources}
    return {name: former for name, former in found.items() if former is not None}


def as_it_ran(query: Query, layout: QueryLayout) -> Query:
    """The query with its sink's table under the name by which the last form in the manifest knows it."""
    former = None if query.sink.rename is None else query.sink.rename.former
    known = forms(layout.manifest)[-1:] if former is not None else []
    told = known[0].form if known else None
    place = told["sink"].get("place") if told is not None and isinstance(told.get("sink"), dict) else None
    if former is None or former.location is None or place != former.location.name or not place:
        return query
    return replace(query, sink=former)


def pending_sources(project: Project, query: Query, layout: QueryLayout) -> dict[str, str]:
    """The sources that the checkpoint is to name otherwise: the new name by the old one. Raises CheckpointError."""
    begun = record(layout)
    if begun is not None:
        return begun
    sources = _renamed(project, query)
    if not sources:
        return {}
    checkpoint = Checkpoint(layout.checkpoint)
    last = checkpoint.last_batch
    entry = None if last is None else checkpoint.offset(last)
    if entry is None or entry.version < 2:
        return {}  # Continuous processing names no source.
    # One that has given nothing yet has no offset, and may have a log.
    names = {source_of(name) for name in (*entry.offsets, *checkpoint.source_names())}
    found: dict[str, str] = {}
    for source in sources:
        former = _one_of(query, source, names)
        if former is not None:
            found[former] = source.name
    if found:
        _require_free(query, checkpoint, found)
    return found


def record(layout: QueryLayout) -> dict[str, str] | None:
    """The renames that were begun and not ended, None without any. Raises CheckpointError."""
    damaged = json_record.Damaged(
        file=layout.source_rename,
        code="HR584",
        what="the record of renamed sources cannot be read",
        fix='restore it from a backup, or write it again: {"OLD NAME": "NEW NAME"}',
    )
    return json_record.read(
        layout.source_rename, lambda facts: {str(old): str(new) for old, new in facts.items()}, damaged
    )


def enter_record(layout: QueryLayout, names: dict[str, str]) -> None:
    """Keep the renames while they are made. Raises OSError."""
    replace_file(layout.source_rename, json.dumps(names) + "\n")


def sources_renamed(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """What the next start renames in the checkpoint, for who looks before it."""
    for old, new in pending_sources(project, query, layout).items():
        fault = f"the next start renames source '{old}' to '{new}' in the checkpoint of query '{query.name}', which "
        where = project.sources[new].where if new in project.sources else query.where
        yield renaming(f"{fault}resumes at the same offsets", where)


def unfinished_sources(layout: QueryLayout) -> Iterator[Finding]:
    """That a rename of sources was cut off, which the next start ends. Raises CheckpointError."""
    for old, new in (record(layout) or {}).items():
        fault = f"the renaming of source '{old}' to '{new}' in the checkpoint of query '{layout.query}' was cut off"
        fix = f"start the query, which ends it: headrace run {layout.query}"
        where = Where(file=str(layout.source_rename))
        yield Finding(code="HR581", where=where, what=fault, fix=fix, severity="warning")


def _renamed(project: Project, query: Query) -> list[NamedSource]:
    return [source for source in project.sources_of(query) if source.renamed_from]


def _one_of(query: Query, source: NamedSource, names: set[str]) -> str | None:
    """The former name of a source among `names`; None where it is known by its own. Raises CheckpointError."""
    formers = [] if source.name in names else [name for name in source.renamed_from if name in names]
    if len(formers) > 1:
        fault = f"source '{source.name}' is renamed from '{formers[0]}' and from '{formers[1]}', and query "
        fault += f"'{query.name}' has read both"
        fix = "name the one in renamed_from whose rows it continues"
        raise CheckpointError(code="HR549", what=fault, fix=fix, where=source.where)
    return formers[0] if formers else None


def _require_free(query: Query, checkpoint: Checkpoint, names: dict[str, str]) -> None:
    """Raise CheckpointError if an earlier batch has read another source of a name that is to be given."""
    taken = {source_of(name) for entry in checkpoint.offsets().values() for name in entry.offsets}
    for old, new in names.items():
        if new in taken:
            fault = f"query '{query.name}' has read another source '{new}' in a batch that its checkpoint still keeps"
            fix = f"give the source '{old}' a name that the query has not read from"
            raise CheckpointError(code="HR549", what=fault, fix=fix, where=query.where)


def table_renamed(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    former, now = table_before(project, query, layout), query.sink.location
    if former is not None and former.location is not None and now is not None:
        fault = f"the start of query '{query.name}' renames {former.location.shown}, with its ledger, to {now.shown}"
        yield renaming(fault, query.where)


def waiting_renames(project: Project, query: Query) -> Iterator[Finding]:
    """Of the query itself, of its sink's table, and of its sources. Raises CheckpointError."""
    layout = layout_of(project, query)
    yield from waiting_rename(project, query)
    yield from table_renamed(project, query, layout)
    yield from sources_renamed(project, query, layout)
