"""A query, its table or its sources renamed at a start that declares the names they had before."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.source_ids import SourceIds
from headrace.checkpoint.sources import rename_for_ledgers, rename_logs, rename_offsets, rename_use
from headrace.errors import CheckpointError, Finding, HeadraceError, NothingChanged
from headrace.history import History
from headrace.model import Project, Query
from headrace.planner.verdict import list_refusals
from headrace.queries import driver_lock
from headrace.queries.application import sink_context
from headrace.queries.blame import named
from headrace.queries.changes import RebuildRecord
from headrace.queries.layout import (
    QueryLayout,
    generations,
    generations_set_aside,
    history_file,
    layout_of,
    newest_layout,
)
from headrace.queries.location import Home, enter_sink, require_same_sink, table_before
from headrace.queries.rename_record import (
    Rename,
    RenameRecord,
    enter_record,
    has_begun,
    has_run,
    pending,
    pending_sources,
    renaming,
    require_no_change,
    table_renamed,
)
from headrace.queries.rename_record import record as source_record
from headrace.run.moved_project import bring_schemas_along
from headrace.run.plan import judgement_over
from headrace.run.sink_work import STOP_FIRST, ignore, require_stopped
from headrace.run.state_store import session_settings
from headrace.spark.jvm.session_conf import apply_settings
from headrace.storage.durable import move as move_directory
from headrace.storage.durable import remove_tree, sync
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def brought_along(project: Project, query: Query, spark: SparkSession, *, anew: bool = False) -> tuple[Finding, ...]:
    """Let all that is kept of `query`, which the caller has locked, have the names that are declared now.

    Its own name first, then that of its sink's table and those of its sources; what is said of it. anew: its result is
    about to be computed anew, so that the query may mean something else. Raises as `take_over`.
    """
    taken = take_over(project, query, spark, anew=anew)
    if not query.sink.facts.durable:
        return taken
    layout = layout_of(project, query)
    begun = source_record(layout) is not None
    waits = table_before(project, query, layout) is not None
    if not anew and (waits or (not begun and pending_sources(project, query, layout))):
        _require_same(project, query, spark, layout)
    return (*taken, *rename_table(project, query, lambda: spark), *rename_sources(project, query))


def take_over(
    project: Project,
    query: Query,
    spark: SparkSession,
    *,
    reached: Callable[[str], None] = ignore,
    locked: frozenset[str] = frozenset(),
    anew: bool = False,
) -> tuple[Finding, ...]:
    """Let `query`, which the caller has locked, have what is kept under its former name; what is said of it.

    locked: other names of it that the caller has locked. anew: as in `brought_along`.
    Nothing is changed if the query would not resume from there.
    Raises CheckFailed, CheckpointError, SinkError or PlatformError.
    """
    found = pending(project, query)
    if found is None:
        return tuple(_nothing_there(project, query))
    if RenameRecord.of(QueryLayout(project.storage, found.former)) is not None:
        # One of several renames was cut off; perhaps that which is now taken back.
        before = replace(query, name=found.former, renamed_from=())
        take_over(project, before, spark, reached=reached, locked=locked | {query.name}, anew=anew)
    with _locked(project, query, found.former, locked):
        if not found.begun:
            _require_resumable(project, query, spark, found, anew=anew)
        names = [replace(query, name=name) for name in (query.name, found.former)]
        said = tuple(move(project, query, found, lambda: spark, reached=_alone(project, names, reached)))
        if found.former not in locked:
            _remove(project.storage / "queries" / found.former)
        return said


def _alone(project: Project, queries: Sequence[Query], reached: Callable[[str], None]) -> Callable[[str], None]:
    """What reports a step, and lets no other follow on it once another process may work on one of these queries.

    A process that was stopped for longer than its lease learns of it in no other way.
    """

    def told(step: str) -> None:
        reached(step)
        for query in queries:
            driver_lock.require_held(project, query)

    return told


def move(
    project: Project,
    query: Query,
    found: Rename,
    session: Callable[[], SparkSession],
    *,
    reached: Callable[[str], None] = ignore,
) -> Iterator[Finding]:
    """The steps of a rename, each of which may be done again; nobody runs the query under either name."""
    storage, former = project.storage, found.former
    old, new = (storage / "queries" / name for name in (former, query.name))
    taking = QueryLayout(storage, query.name)
    if not found.begun:
        # A rebuild has a lock of its own.
        RenameRecord(former=former).begin(taking, lambda: require_no_change(project, query, former))
    reached("recorded")
    try:
        with named(f"the sink of query '{query.name}'", query.where):
            layout = _layout(storage, query, former)
            sink = table_before(project, query, layout) or query.sink
            if sink.rename is not None:
                sink.rename.rename_query(sink_context(project, query, layout, makes=True), former, session)
    except NothingChanged:
        reached("unchanged")
        if not found.begun:
            RenameRecord.remove(taking)
        raise
    reached("sink")
    said = list(_rename_history(project.local_storage, former, query.name))
    reached("history")
    with writing_to(new):
        _move_generations(old, new)
        reached("moved")
        for folder in new.glob("g*"):
            bring_schemas_along(QueryLayout(storage, query.name, int(folder.name[1:])), former)
        reached("schemas")
        RenameRecord.remove(taking)
    yield from said
    what = f"query '{query.name}' continues what ran as '{former}': its checkpoint, archive, history and ledger have "
    yield renaming(f"{what}the new name", query.where)


# ------------------------------------------------------------------------------------------------------ before it


@contextmanager
def _locked(project: Project, query: Query, former: str, locked: Collection[str]) -> Iterator[None]:
    """No driver runs the query under its former name meanwhile. Raises CheckFailed if one does."""
    twin = replace(query, name=former)
    require_stopped(project, twin, code="HR549")
    if former in locked or not (project.storage / "queries" / former).is_dir():
        yield
        return
    if driver_lock.is_held_here(project, twin):
        what = f"query '{query.name}' cannot be renamed: '{former}' is running in this process"
        raise CheckpointError(code="HR549", what=what, fix=STOP_FIRST, where=query.where)
    lock = driver_lock.take(project, twin)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _require_resumable(project: Project, query: Query, spark: SparkSession, found: Rename, *, anew: bool) -> None:
    """Raise CheckpointError if the query has changed so that it does not resume from what has the former name."""
    sink = query.sink
    if sink.facts.transactional and sink.rename is None:
        what = f"query '{query.name}' cannot be renamed: the sink '{query.sink_kind}' keeps its name in a ledger"
        fix = f"name it '{found.former}' again, or let the sink have a `rename`"
        raise CheckpointError(code="HR549", what=what, fix=fix, where=query.where)
    storage = project.storage
    layout = newest_layout(storage, found.former)
    if anew:
        require_same_sink(project, query, layout)
    else:
        _require_same(project, query, spark, layout)


def _require_same(project: Project, query: Query, spark: SparkSession, layout: QueryLayout) -> None:
    """Raise CheckpointError if what is kept in `layout` is of a query that meant something else."""
    require_same_sink(project, query, layout)
    with apply_settings(spark, session_settings(project, spark)):
        judgement = judgement_over(project, query, spark, Home(layout=layout))
    if refused := tuple(list_refusals(query, judgement)):
        raise CheckpointError(refused)


def _nothing_there(project: Project, query: Query) -> Iterator[Finding]:
    if query.renamed_from and query.sink.facts.durable and not has_run(project.storage, query.name):
        named_so = " or ".join(f"'{name}'" for name in query.renamed_from)
        yield Finding(
            code="HR559",
            what=f"query '{query.name}' is renamed from {named_so}, and nothing is kept here under that name: it "
            "begins with its sources",
            fix="nothing, if it has never run here; else look whether `storage` is the right directory",
            where=query.where,
        )


# ------------------------------------------------------------------------------------------------------ the steps


def _layout(storage: Path, query: Query, former: str) -> QueryLayout:
    """Where the life lies that is renamed."""
    return newest_layout(storage, former if has_begun(storage, former) else query.name)


def _rename_history(storage: Path, former: str, name: str) -> Iterator[Finding]:
    """Let the history tell of earlier runs under the new name; it keeps no stream from running."""
    if not history_file(storage).exists():
        return
    try:
        with History.open(history_file(storage)) as history:
            history.rename(former, name)
    except HeadraceError as error:
        yield from (finding.with_severity("warning") for finding in error.findings)


def _move_generations(old: Path, new: Path) -> None:
    """Move each generation's directory, in place of those that a start without a batch has left."""
    # The newest last: until it is moved, the life that is renamed is found under the former name.
    moved = sorted(generations(old))
    for left in new.glob("g*") if moved else ():
        if Checkpoint(left / "checkpoint").last_batch is None:
            remove_tree(left)
    for number in moved:
        try:
            move_directory(old / f"g{number}", new / f"g{number}")
        except OSError as error:
            # It was moved before; what a driver under the former name has written since is no part of its life.
            is_moved = Checkpoint(new / f"g{number}" / "checkpoint").last_batch is not None
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or not is_moved:
                raise
    sync(new)


def _remove(old: Path) -> None:
    """Remove what is left of the former name; what somebody else has put there stays."""
    with suppress(OSError):
        (old / driver_lock.NAME).unlink(missing_ok=True)
        (old / "reset").rmdir()
    with suppress(OSError):
        old.rmdir()


def rename_table(project: Project, query: Query, session: Callable[[], SparkSession]) -> tuple[Finding, ...]:
    """Let the table of `query`, which the caller has locked, have its new name; what is said of it.

    Raises CheckpointError or SinkError. Called again after a crash, it ends what was begun.
    """
    if not query.sink.facts.durable or query.sink.rename is None:
        return ()
    layout = layout_of(project, query)
    if table_before(project, query, layout) is None:
        return ()
    set_aside = generations_set_aside(project.storage, query.name)
    if set_aside or RebuildRecord.of(layout) is not None:
        why = "a reset has set results aside" if set_aside else "a rebuild is kept"
        what = f"the table of query '{query.name}' cannot be renamed: {why} under its old name"
        fix = f"name it so again, and end that first: headrace change discard {query.name}"
        raise CheckpointError(code="HR549", what=what, fix=fix, where=query.where)
    said = tuple(table_renamed(project, query, layout))
    context = sink_context(project, query, layout, makes=True)
    with named(f"the sink of query '{query.name}'", query.where):
        query.sink.rename.rename_table(context, session)
    enter_sink(project, query, layout)
    return said


def rename_sources(project: Project, query: Query) -> tuple[Finding, ...]:
    """Let the checkpoint of `query`, which the caller has locked, name its sources as they are now.

    Raises CheckpointError or PlatformError.
    """
    layout = layout_of(project, query)
    names = pending_sources(project, query, layout)
    if not names:
        return ()
    make(layout, names, reached=_alone(project, [query], ignore))
    shown = ", ".join(f"'{old}' to '{new}'" for old, new in names.items())
    what = f"the checkpoint of query '{query.name}' names its sources anew ({shown}), and continues at the same offsets"
    return (renaming(what, query.where),)


def make(layout: QueryLayout, names: Mapping[str, str], *, reached: Callable[[str], None] = ignore) -> None:
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
        SourceIds(layout.home).rename_sources(names)
        reached("source ids")
        for folder in sorted(layout.quarantine.iterdir()) if layout.quarantine.is_dir() else ():
            new = folder.with_name(rename_use(folder.name, names))
            if folder.is_dir() and new != folder:
                move_directory(folder, new)
        reached("quarantine")
        layout.source_rename.unlink()
        sync(layout.home)
