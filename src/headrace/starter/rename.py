"""A table renamed at a start that declares the name it had before, and the history of a renamed query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.errors import CheckpointError, Finding, HeadraceError
from headrace.generations.blame import named
from headrace.generations.facts import StartFacts
from headrace.generations.location import enter_sink, require_same_sink, table_before, table_renamed
from headrace.generations.log import history_file, rebuilding, unused_layouts_of
from headrace.generations.register import Register, former_names, nothing_kept, require_one_meaning
from headrace.history import History
from headrace.model import Project, Query
from headrace.planner.verdict import list_refusals
from headrace.spark.jvm.session_conf import apply_settings
from headrace.starter.plan import compare_with_last_run
from headrace.starter.state_store import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def apply_renames(facts: StartFacts, spark: SparkSession, *, rebuilds: bool = False) -> tuple[Finding, ...]:
    """Let the table of a query, which the caller has locked, have the name that is declared now.

    rebuilds: its result is about to be computed again, so that the query may mean something else. Raises CheckFailed,
    CheckpointError, SinkError or PlatformError.
    """
    project, query = facts.project, facts.query
    if not query.sink.facts.durable:
        return ()
    require_one_meaning(project, query, facts.register)
    if not rebuilds and table_before(project, query, facts.layout) is not None:
        _require_same(facts, spark)
    return (*nothing_kept(project, query, facts.register), *rename_table(facts, lambda: spark))


def _require_same(facts: StartFacts, spark: SparkSession) -> None:
    """Raise CheckpointError if what is kept is of a query that meant something else."""
    require_same_sink(facts.project, facts.query, facts.layout)
    with apply_settings(spark, session_settings(facts.project, spark)):
        judgement = compare_with_last_run(facts, spark)
    if refused := tuple(list_refusals(facts.query, judgement)):
        raise CheckpointError(refused)


def rename_history(project: Project, query: Query, register: Register | None) -> Iterator[Finding]:
    """Rename earlier runs in the history to the present name of the query; a failure does not stop the stream."""
    file = history_file(project.local_storage)
    formers = former_names(project, query, register) if file.exists() else ()
    if not formers:
        return
    try:
        with History.open(file) as history:
            for former in formers:
                history.rename(former, query.name)
    except HeadraceError as error:
        yield from (finding.with_severity("warning") for finding in error.findings)


def rename_table(facts: StartFacts, session: Callable[[], SparkSession]) -> tuple[Finding, ...]:
    """Let the table of a query, which the caller has locked, have its new name; return what a user should know.

    Raises CheckpointError or SinkError. Called again after a crash, it ends what was begun.
    """
    project, query, layout = facts.project, facts.query, facts.layout
    if not query.sink.facts.durable or query.sink.rename is None:
        return ()
    if table_before(project, query, layout) is None:
        return ()
    kept = [former for former in unused_layouts_of(layout) if former.generation != layout.generation]
    if kept or any(rebuilding(layout)):
        why = "a former result is kept" if kept else "a rebuild is kept"
        fault = f"the table of query '{query.name}' cannot be renamed: {why} under its old name"
        fix = f"name it so again, and end that first: headrace change discard {query.name}"
        raise CheckpointError(code="HR549", what=fault, fix=fix, where=query.where)
    notes = tuple(table_renamed(project, query, layout))
    with named(f"the sink of query '{query.name}'", query.where):
        query.sink.rename.rename_table(facts.sink_context(), session)
    enter_sink(project, query, layout)
    return notes
