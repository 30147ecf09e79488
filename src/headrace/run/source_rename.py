"""Sources that were renamed, renamed in a query's checkpoint and beside it, so that it resumes at the same offsets.

The record comes first; each step may be done again, so that the next start ends what was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.checkpoint import Archive
from headrace.checkpoint.source_names import rename_for_ledgers, rename_logs, rename_offsets, renamed
from headrace.errors import Finding
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.run.home import layout_of
from headrace.run.source_names import enter_record, pending_sources
from headrace.storage.durable import move, sync_directory
from headrace.storage.faults import writing_to


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
