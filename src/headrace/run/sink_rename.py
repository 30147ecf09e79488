"""The table of a sink renamed at a start, where the sink declares the name that it had before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.contract import SinkContext
from headrace.errors import CheckpointError, Finding
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout, generations_set_aside
from headrace.run.application import application
from headrace.run.home import layout_of
from headrace.run.naming import named
from headrace.run.rebuild_record import RebuildRecord
from headrace.run.sink_location import enter_sink, table_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rename_table(project: Project, query: Query, session: Callable[[], SparkSession]) -> tuple[Finding, ...]:
    """Let the table of `query`, which the caller has locked, have its new name; what is said of it.

    Raises CheckpointError or SinkError. Called again after a crash, it ends what was begun.
    """
    if not query.sink.facts.durable:
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
        query.sink.rename_table(context, session)
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
