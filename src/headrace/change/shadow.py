"""The query of a rebuild: the same declaration, with a storage directory and a place of its own, until its swap.

Its generation is the one that follows, under the same name and id, so that what it leaves is what the query itself
would have left. Its history has a place of its own as well, on this machine, since the query may run beside it. At the
swap the sink comes first, then the storage; what a crash leaves is refused by every start until it is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.contract import Lag, Sink, SinkSwap, SourcePrefix
from headrace.errors import CheckFailed, HeadraceError, NothingChanged
from headrace.history import History
from headrace.history.lag import lag, read_committed_prefixes
from headrace.model import AvailableNow, NamedSource, Project, Query
from headrace.planner.ends import place_of
from headrace.queries.blame import named, reset_command
from headrace.queries.changes import ChangeStatus, RebuildRecord
from headrace.queries.identity import register_project
from headrace.queries.layout import QueryLayout, history_file, layout_of, rebuild_storage
from headrace.queries.location import enter_sink
from headrace.queries.manifest import move_sink
from headrace.queries.register import Entry, append, enter_directory
from headrace.run.moved_project import rename_schemas
from headrace.run.sink_work import SinkWork
from headrace.storage.durable import end_move, move, remove_tree, sync
from headrace.storage.location import is_remote
from headrace.storage.private import make_private, writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class RebuildStatus(ChangeStatus):
    """How far the rebuild of a query is.

    former, generation: the numbers of the two. batches, rows: of the rebuilt one, so far. lag: what its sources still
    hold that it has not taken. notes: what was said before it began.
    """

    former: int
    generation: int
    batches: int = 0
    rows: int = 0
    lag: Lag | None = None
    notes: Sequence[str] = ()
    report: Mapping[str, Any] | None = None


def shadow(project: Project, query: Query, *, sources: Mapping[str, NamedSource] | None = None) -> Project:
    """The project as the rebuild of `query` sees it; `sources` take the place of those of their names."""
    storage = rebuild_storage(project.storage, layout_of(project, query)).absolute()
    beside = replace(query, sink=exchange(query).beside, trigger=AvailableNow(), on_change="refuse", renamed_from=())
    return replace(
        project,
        target=replace(project.target, storage=str(storage)),
        local=local_storage(project, query),
        queries={**project.queries, query.name: beside},
        sources={**project.sources, **(sources or {})},
    )


def exchange(query: Query) -> SinkSwap:
    """What exchanges the results of `query`. Raises CheckFailed for a sink that cannot."""
    if query.sink.swap is None:
        why = f"the sink '{query.sink_kind}' cannot exchange one result for another"
        fix = f"reset it: {reset_command(query)}; or let it write to another place"
        fault = f"query '{query.name}' cannot be rebuilt: {why}"
        raise CheckFailed(code="HR580", what=fault, fix=fix, where=query.where)
    return query.sink.swap


def local_storage(project: Project, query: Query) -> Path:
    """Where the history of the rebuild is: in its storage directory, if that is local."""
    return rebuild_storage(project.local_storage, layout_of(project, query)).absolute()


def layout_beside(project: Project, query: Query, record: RebuildRecord) -> QueryLayout:
    """Where the rebuilt generation lies while it is beside."""
    layout = layout_of(project, query)
    storage = rebuild_storage(project.storage, layout).absolute()
    return replace(layout, storage=storage, generation=record.generation)


def make(project: Project, query: Query, record: RebuildRecord) -> QueryLayout:
    """The storage directory of the rebuild, made if it is not there. Raises PlatformError."""
    layout = layout_beside(project, query, record)
    entry = Entry(id=layout.query_id, directory=layout.directory)
    register = replace(register_project(project), rebuilds=True, queries={query.name: entry}, number=0)
    with writing_to(layout.storage):
        make_private(layout.storage.parent)
        layout.storage.mkdir(exist_ok=True, mode=0o700)
        enter_directory(layout.storage, entry, register, query.name)
        append(layout.storage, register)
        # The number of the generation is told by its directory.
        layout.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        sync(layout.home.parent)
    return layout


def remove(project: Project, query: Query) -> None:
    """Let there be no storage directory of the rebuild, nor a history. Raises PlatformError."""
    for storage in dict.fromkeys(
        (rebuild_storage(project.storage, layout_of(project, query)), local_storage(project, query))
    ):
        with writing_to(storage):
            remove_tree(storage)
        # Other queries may be rebuilt at the same time, and a store removes a directory with what is in it.
        if not is_remote(storage):
            with suppress(OSError):
                storage.parent.rmdir()


def rebuild_status(project: Project, query: str) -> RebuildStatus | None:
    """How far the rebuild of `query` is; None without one. Raises CheckpointError for a record that is damaged."""
    declared = project.queries[query]
    live = layout_of(project, declared)
    record = RebuildRecord.of(live)
    if record is None:
        return None
    beside = layout_beside(project, declared, record)
    layout = beside if beside.home.exists() else replace(live, generation=record.generation)
    committed, waiting = None, None
    try:
        committed = Checkpoint(layout.checkpoint).last_committed
        waiting = lag(project, declared, layout) if record.phase == "building" else None
    except HeadraceError:
        pass  # What is wrong with it is told when the rebuild continues.
    batches = 0 if committed is None else committed + 1
    change = f"headrace change {{}} {query}"
    sentence = {
        "building": f"a rebuild is building generation {record.generation}, {batches} batches so far; "
        f"watch it: {change.format('status')}",
        "swapping": f"the swap of its rebuild was cut off; end it: {change.format('resume')}; or take it back: "
        f"{change.format('undo')}",
        "swapped": f"it was rebuilt, and generation {record.former} is kept; bring it back: {change.format('undo')}; "
        f"delete it: {change.format('discard')}",
        "rolling-back": f"the roll-back of its rebuild was cut off; end it: {change.format('resume')}",
        "abandoning": f"its rebuild was being given up; end that: {change.format('resume')}",
        "discarding": f"generation {record.former} is being deleted; end that: {change.format('resume')}",
    }[record.phase]
    return RebuildStatus(
        query=query,
        change="rebuild",
        phase=record.phase,
        begun=record.at,
        is_cut_off=record.phase in ("swapping", "rolling-back"),
        sentence=sentence,
        former=record.former,
        generation=record.generation,
        batches=batches,
        rows=_rows(project, declared, record.generation),
        lag=waiting,
        notes=record.notes,
        report=record.report,
    )


def _rows(project: Project, query: Query, generation: int) -> int:
    """What the rebuilt generation has read, by its own history, or after the swap by that of the project."""
    found = [0]
    for storage in (local_storage(project, query), project.local_storage):
        if history_file(storage).exists():
            with suppress(HeadraceError), History.open(history_file(storage), read_only=True) as history:
                known = (
                    status
                    for status in history.statuses()
                    if (status.query, status.generation) == (query.name, generation)
                )
                found += [each.rows_total for each in known]
    return max(found)


def gone(project: Project, query: Query, layout: QueryLayout, spark: SparkSession) -> Iterator[str]:
    """What the generation in `layout` has read and a new one would not be given, a sentence for each source."""
    sources = project.sources_of(query)
    try:
        prefixes = read_committed_prefixes(project, query, layout)
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
        prefixes = read_committed_prefixes(project, query, layout)
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


def swap_in(work: SinkWork, record: RebuildRecord, reached: Callable[[str], None]) -> RebuildRecord:
    """Let the rebuilt generation be the one that the query runs as; the former one stays, set aside."""
    project, query = work.project, work.query
    before, made = _layouts(work, record)
    was = record
    record = record.at_phase("swapping").enter(before)
    reached("recorded")
    try:
        with work.named():
            rebuilt = replace(work.context(made), rebuilds=True)
            exchange(query).swap_in(work.context(before), rebuilt, work.session)
    except NothingChanged:
        reached("unchanged")
        if was.phase == "building":
            was.enter(before)
        raise
    reached("sink")
    place = replace(before, generation=record.generation)
    # The newest generation is the one that the query runs as, so that this one step is the switch.
    _move(made, place)
    reached("moved")
    _bring_along(work, query, made, place, query.sink)
    reached("rewritten")
    with suppress(HeadraceError), History.open(history_file(project.local_storage)) as history:
        there = history_file(local_storage(project, query))
        history.take_over(there, query.name, record.generation)
    remove(project, query)
    return record.at_phase("swapped").enter(before)


def swap_out(work: SinkWork, record: RebuildRecord, reached: Callable[[str], None]) -> RebuildRecord:
    """Let the former generation be the one that the query runs as; the rebuilt one lies beside, as before the swap."""
    project, query = work.project, work.query
    before, made = _layouts(work, record)
    place = replace(before, generation=record.generation)
    if record.phase == "swapping":
        # In an object store a part of it may lie in either place.
        with writing_to(place.home):
            end_move(place.home)
    was = record
    record = record.at_phase("rolling-back").enter(before)
    reached("recorded")
    try:
        with work.named():
            exchange(query).swap_out(work.context(before), replace(work.context(made), rebuilds=True), work.session)
    except NothingChanged:
        reached("unchanged")
        if was.phase in ("swapped", "swapping"):
            was.enter(before)
        raise
    reached("sink")
    if place.home.exists():
        made = make(project, query, record)
    _move(place, made)
    reached("moved")
    beside = exchange(query).beside
    _bring_along(work, replace(query, sink=beside), place, made, beside)
    reached("rewritten")
    return record.at_phase("building").enter(before)


def _layouts(work: SinkWork, record: RebuildRecord) -> tuple[QueryLayout, QueryLayout]:
    before = replace(layout_of(work.project, work.query), generation=record.former)
    return before, layout_beside(work.project, work.query, record)


def _move(old: QueryLayout, new: QueryLayout) -> None:
    with writing_to(new.storage):
        end_move(new.home)
        if old.home.exists():
            if new.home.exists() and Checkpoint(new.checkpoint).last_committed is None:
                # Of a process that was stopped for longer than its lease; nothing of it came in.
                remove_tree(new.home)
            new.home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            move(old.home, new.home)


def _bring_along(work: SinkWork, query: Query, old: QueryLayout, new: QueryLayout, sink: Sink) -> None:
    """Let what the generation keeps of its own place and of its sink's name the new ones."""
    with writing_to(new.home):
        rename_schemas(new, (str(old.home.absolute()), str(new.home.absolute())))
    move_sink(new, place_of(work.project, sink))
    enter_sink(work.project, query, new)
