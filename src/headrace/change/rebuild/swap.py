"""The two generations of a rebuild exchanged, and exchanged back: the sink, then the storage, each step repeatable.

What a crash leaves is refused by every start until the same way, or the other, is gone to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from headrace.change.rebuild import shadow
from headrace.checkpoint.relocation import rewrite_text
from headrace.contract import Sink
from headrace.errors import HeadraceError, NothingChanged
from headrace.model import Query
from headrace.observe.history import History
from headrace.plan.ends import place_of
from headrace.queries.changes import RebuildRecord
from headrace.queries.layout import QueryLayout, history_file
from headrace.queries.manifest import move_sink
from headrace.queries.sink_location import enter_sink
from headrace.run.sink_work import SinkWork
from headrace.storage.durable import end_move, move, sync_directory
from headrace.storage.private import writing_to


def swap_in(work: SinkWork, record: RebuildRecord, reached: Callable[[str], None]) -> RebuildRecord:
    """Let the rebuilt generation be the one that the query runs as; the former one stays, set aside."""
    project, query = work.project, work.query
    before, made = _layouts(work, record)
    was = record
    record = record.at_phase("swapping").enter(project.storage, query.name)
    reached("recorded")
    try:
        with work.named():
            rebuilt = replace(work.context(made), rebuilds=True)
            shadow.exchange(query).swap_in(work.context(before), rebuilt, work.session)
    except NothingChanged:
        if was.phase == "building":
            was.enter(project.storage, query.name)
        raise
    reached("sink")
    place = QueryLayout(project.storage, query.name, record.generation)
    # The newest generation is the one that the query runs as, so that this one step is the switch.
    _move(made, place)
    reached("moved")
    _bring_along(work, query, made, place, query.sink)
    reached("rewritten")
    with suppress(HeadraceError), History.open(history_file(project.local_storage)) as history:
        there = history_file(shadow.local_storage(project, query.name))
        history.take_over(there, query.name, record.generation)
    shadow.remove(project, query)
    return record.at_phase("swapped").enter(project.storage, query.name)


def swap_out(work: SinkWork, record: RebuildRecord, reached: Callable[[str], None]) -> RebuildRecord:
    """Let the former generation be the one that the query runs as; the rebuilt one lies beside, as before the swap."""
    project, query = work.project, work.query
    before, made = _layouts(work, record)
    place = QueryLayout(project.storage, query.name, record.generation)
    if record.phase == "swapping":
        # In an object store a part of it may lie in either place.
        with writing_to(place.home):
            end_move(place.home)
    was = record
    record = record.at_phase("rolling-back").enter(project.storage, query.name)
    reached("recorded")
    try:
        with work.named():
            shadow.exchange(query).swap_out(
                work.context(before), replace(work.context(made), rebuilds=True), work.session
            )
    except NothingChanged:
        if was.phase in ("swapped", "swapping"):
            was.enter(project.storage, query.name)
        raise
    reached("sink")
    if place.home.exists():
        made = shadow.make(project, query, record)
        with writing_to(made.home):
            if not any(made.home.iterdir()):
                made.home.rmdir()
    _move(place, made)
    reached("moved")
    beside = shadow.exchange(query).beside
    _bring_along(work, replace(query, sink=beside), place, made, beside)
    reached("rewritten")
    return record.at_phase("building").enter(project.storage, query.name)


def _layouts(work: SinkWork, record: RebuildRecord) -> tuple[QueryLayout, QueryLayout]:
    before = QueryLayout(work.project.storage, work.query.name, record.former)
    return before, shadow.layout_beside(work.project, work.query, record)


def _move(old: QueryLayout, new: QueryLayout) -> None:
    with writing_to(new.storage):
        end_move(new.home)
        if old.home.exists():
            new.home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            move(old.home, new.home)
            sync_directory(new.home.parent)
            sync_directory(old.home.parent)


def _bring_along(work: SinkWork, query: Query, old: QueryLayout, new: QueryLayout, sink: Sink) -> None:
    """Let what the generation keeps of its own place and of its sink's name the new ones."""
    with writing_to(new.home):
        # Spark's description of an operator with several state variables names the files of their schemas.
        for file in new.checkpoint.glob("state/*/_metadata/v2/*"):
            if not file.name.startswith("."):
                rewrite_text(file, str(old.home.absolute()), str(new.home.absolute()))
    move_sink(new, place_of(work.project, sink))
    enter_sink(work.project, query, new)
