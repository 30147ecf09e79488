"""The table of a sink, and the sources of a query, renamed at a start that declares the names they had before.

Of sources the record comes first, and the checkpoint then resumes at the same offsets. Each step may be done again, so
that the next start ends what was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.checkpoint import Archive
from headrace.checkpoint.sources import rename_for_ledgers, rename_logs, rename_offsets, renamed
from headrace.contract import SinkContext
from headrace.errors import CheckpointError, Finding
from headrace.model import Project, Query
from headrace.queries import source_names
from headrace.queries.application import application
from headrace.queries.changes import RebuildRecord
from headrace.queries.home import layout_of
from headrace.queries.layout import QueryLayout, generations_set_aside
from headrace.queries.naming import named
from headrace.queries.rename_record import kept_in, what_is_moved
from headrace.queries.sink_location import enter_sink, table_before
from headrace.queries.source_names import enter_record, pending_sources
from headrace.storage.durable import move, sync_directory
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rename_table(project: Project, query: Query, session: Callable[[], SparkSession]) -> tuple[Finding, ...]:
    """Let the table of `query`, which the caller has locked, have its new name; what is said of it.

    Raises CheckpointError or SinkError. Called again after a crash, it ends what was begun.
    """
    if not query.sink.facts.durable or query.sink.rename is None:
        return ()
    layout = layout_of(project, query)
    if table_before(project, query, layout) is None:
        return ()
    if generations_set_aside(project.storage, query.name):
        what = f"the table of query '{query.name}' cannot be renamed: a reset has set results aside under its old name"
        fix = f"name it so again, and end that first: headrace reset {query.name} --discard"
        raise CheckpointError(Finding(code="HR549", what=what, fix=fix, where=query.where))
    if RebuildRecord.of(project.storage, query.name) is not None:
        what = f"the table of query '{query.name}' cannot be renamed: a rebuild is kept under its old name"
        fix = (
            f"name it so again, and end that first: headrace rebuild {query.name} --abandon, or --discard after a swap"
        )
        raise CheckpointError(Finding(code="HR549", what=what, fix=fix, where=query.where))
    said = tuple(what_is_renamed(project, query, layout))
    context = SinkContext(
        query=query.name,
        generation=layout.generation,
        mode=query.mode,
        checkpoint=layout.checkpoint,
        **application(project).facts(),
    )
    with named(f"the sink of query '{query.name}'", query.where):
        query.sink.rename.rename_table(context, session)
    enter_sink(project, query, layout)
    return said


def what_is_renamed(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """That a start renames the table."""
    former, now = table_before(project, query, layout), query.sink.location
    if former is not None and former.location is not None and now is not None:
        yield Finding(
            code="HR559",
            what=f"the start of query '{query.name}' renames {former.location.shown}, with its ledger, to {now.shown}",
            fix="nothing: renamed_from may stay, or go once the rename was run everywhere",
            where=query.where,
        )


def _nobody(step: str) -> None:
    """Tell nobody."""


def rename_sources(project: Project, query: Query) -> tuple[Finding, ...]:
    """Let the checkpoint of `query`, which the caller has locked, name its sources as they are now.

    Raises CheckpointError or PlatformError.
    """
    layout = layout_of(project, query)
    names = pending_sources(project, query, layout)
    if not names:
        return ()
    make(layout, names)
    shown = ", ".join(f"'{old}' to '{new}'" for old, new in names.items())
    return (
        Finding(
            code="HR559",
            what=f"the checkpoint of query '{query.name}' names its sources anew ({shown}), and continues at the same "
            "offsets",
            fix="nothing: renamed_from may stay, or go once the rename was run everywhere",
            where=query.where,
        ),
    )


def make(layout: QueryLayout, names: Mapping[str, str], *, reached: Callable[[str], None] = _nobody) -> None:
    """The steps, each of which may be done again; names: the new one by the old one."""
    root = layout.checkpoint
    with writing_to(layout.home):
        enter_record(layout, dict(names))
        reached("recorded")
        rename_for_ledgers(root, names)
        reached("ledger names")
        rename_logs(root, names)
        reached("logs")
        rename_offsets(root, names)
        reached("offsets")
        Archive(layout.archive).rename_sources(names)
        reached("archive")
        for folder in sorted(layout.quarantine.iterdir()) if layout.quarantine.is_dir() else ():
            new = folder.with_name(renamed(folder.name, names))
            if folder.is_dir() and new != folder:
                move(folder, new)
        reached("quarantine")
        layout.source_rename.unlink()
        sync_directory(layout.home)


def waiting_renames(project: Project, query: Query) -> Iterator[Finding]:
    """Of the query itself, of its sink's table, and of its sources. Raises CheckpointError."""
    layout = kept_in(project, query)
    yield from what_is_moved(project, query)
    yield from what_is_renamed(project, query, layout)
    yield from source_names.what_is_renamed(project, query, layout)
