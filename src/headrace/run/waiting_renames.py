"""What the next start of a query renames, for who looks before it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import Finding
from headrace.model import Project, Query
from headrace.run import sink_rename, source_names
from headrace.run.rename_record import kept_in, what_is_moved


def waiting_renames(project: Project, query: Query) -> Iterator[Finding]:
    """Of the query itself, of its sink's table, and of its sources. Raises CheckpointError."""
    layout = kept_in(project, query)
    yield from what_is_moved(project, query)
    yield from sink_rename.what_is_renamed(project, query, layout)
    yield from source_names.what_is_renamed(project, query, layout)
