"""The query of a rebuild: the same declaration, with a storage directory and a place of its own.

Its generation is the one that follows, under the same name and id, so that what it leaves is what the query itself
would have left. Its history has a place of its own as well, on this machine, since the query may run beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headrace.contract import SinkSwap
from headrace.errors import CheckFailed, Finding
from headrace.model import AvailableNow, NamedSource, Project, Query
from headrace.queries.application import application
from headrace.queries.blame import reset_command
from headrace.queries.changes import RebuildRecord
from headrace.queries.layout import QueryLayout, rebuild_storage
from headrace.storage.durable import remove_tree, sync_directory
from headrace.storage.location import is_remote
from headrace.storage.private import make_private, writing_to


def shadow(project: Project, query: Query, *, sources: Mapping[str, NamedSource] | None = None) -> Project:
    """The project as the rebuild of `query` sees it; `sources` take the place of those of their names."""
    storage = rebuild_storage(project.storage, query.name).absolute()
    beside = replace(query, sink=exchange(query).beside, trigger=AvailableNow(), on_change="refuse", renamed_from=())
    return replace(
        project,
        target=replace(project.target, storage=str(storage)),
        local=local_storage(project, query.name),
        queries={**project.queries, query.name: beside},
        sources={**project.sources, **(sources or {})},
    )


def exchange(query: Query) -> SinkSwap:
    """What exchanges the results of `query`. Raises CheckFailed for a sink that cannot."""
    if query.sink.swap is None:
        why = f"the sink '{query.sink_kind}' cannot exchange one result for another"
        fix = f"reset it: {reset_command(query)}; or let it write to another place"
        what = f"query '{query.name}' cannot be rebuilt: {why}"
        raise CheckFailed(Finding(code="HR580", what=what, fix=fix, where=query.where))
    return query.sink.swap


def local_storage(project: Project, query: str) -> Path:
    """Where the history of the rebuild is: in its storage directory, if that is local."""
    return rebuild_storage(project.local_storage, query).absolute()


def layout_beside(project: Project, query: Query, record: RebuildRecord) -> QueryLayout:
    """Where the rebuilt generation lies while it is beside."""
    return QueryLayout(rebuild_storage(project.storage, query.name).absolute(), query.name, record.generation)


def make(project: Project, query: Query, record: RebuildRecord) -> QueryLayout:
    """The storage directory of the rebuild, made if it is not there. Raises PlatformError."""
    layout = layout_beside(project, query, record)
    known = application(project)
    with writing_to(layout.storage):
        make_private(layout.storage.parent)
        layout.storage.mkdir(exist_ok=True, mode=0o700)
        replace(known, rebuilds=True).enter(layout.storage)
        # The number of the generation is told by its directory.
        layout.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        sync_directory(layout.home.parent)
    return layout


def remove(project: Project, query: Query) -> None:
    """Let there be no storage directory of the rebuild, nor a history. Raises PlatformError."""
    for storage in dict.fromkeys((rebuild_storage(project.storage, query.name), local_storage(project, query.name))):
        with writing_to(storage):
            remove_tree(storage)
        # Other queries may be rebuilt at the same time, and a store removes a directory with what is in it.
        if not is_remote(storage):
            with suppress(OSError):
                storage.parent.rmdir()
