"""A table renamed at a start that declares the name it had before, and the history of a renamed query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.errors import CheckpointError, Finding, HeadraceError
from headrace.history import History
from headrace.model import Project, Query
from headrace.planner.verdict import list_refusals
from headrace.queries.blame import named
from headrace.queries.changes import rebuilding
from headrace.queries.identity import former_names, nothing_kept, require_one_meaning, sink_context
from headrace.queries.layout import QueryLayout, history_file, kept_of, layout_of
from headrace.queries.location import Home, enter_sink, require_same_sink, table_before, table_renamed
from headrace.queries.register import read_register
from headrace.run.plan import judgement_over
from headrace.run.state_store import session_settings
from headrace.spark.jvm.session_conf import apply_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def apply_renames(
    project: Project, query: Query, spark: SparkSession, *, rebuilds: bool = False
) -> tuple[Finding, ...]:
    """Let the table of `query`, which the caller has locked, have the name that is declared now.

    rebuilds: its result is about to be computed again, so that the query may mean something else. Raises CheckFailed,
    CheckpointError, SinkError or PlatformError.
    """
    if not query.sink.facts.durable:
        return ()
    require_one_meaning(project, query, read_register(project.storage))
    layout = layout_of(project, query)
    if not rebuilds and table_before(project, query, layout) is not None:
        _require_same(project, query, spark, layout)
    return (*nothing_kept(project, query), *rename_table(project, query, lambda: spark))


def _require_same(project: Project, query: Query, spark: SparkSession, layout: QueryLayout) -> None:
    """Raise CheckpointError if what is kept in `layout` is of a query that meant something else."""
    require_same_sink(project, query, layout)
    with apply_settings(spark, session_settings(project, spark)):
        judgement = judgement_over(project, query, spark, Home(layout=layout))
    if refused := tuple(list_refusals(query, judgement)):
        raise CheckpointError(refused)


def rename_history(project: Project, query: Query) -> Iterator[Finding]:
    """Rename earlier runs in the history to the present name of the query; a failure does not stop the stream."""
    file = history_file(project.local_storage)
    formers = former_names(project, query) if file.exists() else ()
    if not formers:
        return
    try:
        with History.open(file) as history:
            for former in formers:
                history.rename(former, query.name)
    except HeadraceError as error:
        yield from (finding.with_severity("warning") for finding in error.findings)


def rename_table(project: Project, query: Query, session: Callable[[], SparkSession]) -> tuple[Finding, ...]:
    """Let the table of `query`, which the caller has locked, have its new name; what is said of it.

    Raises CheckpointError or SinkError. Called again after a crash, it ends what was begun.
    """
    if not query.sink.facts.durable or query.sink.rename is None:
        return ()
    layout = layout_of(project, query)
    if table_before(project, query, layout) is None:
        return ()
    kept = [former for former in kept_of(layout) if former.generation != layout.generation]
    if kept or any(rebuilding(layout)):
        why = "a former result is kept" if kept else "a rebuild is kept"
        fault = f"the table of query '{query.name}' cannot be renamed: {why} under its old name"
        fix = f"name it so again, and end that first: headrace change discard {query.name}"
        raise CheckpointError(code="HR549", what=fault, fix=fix, where=query.where)
    said = tuple(table_renamed(project, query, layout))
    context = sink_context(project, query, layout)
    with named(f"the sink of query '{query.name}'", query.where):
        query.sink.rename.rename_table(context, session)
    enter_sink(project, query, layout)
    return said
