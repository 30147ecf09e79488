"""What would come of a start, without one: each query as written against what ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.build.catalog import registered_tables
from headrace.build.plan_builder import build
from headrace.build.project_session import borrowed
from headrace.build.tables import Tables
from headrace.check.structure import concerning
from headrace.errors import CheckFailed, Finding, HeadraceError
from headrace.model import Project, Query
from headrace.plan.judgement import Judgement, judged
from headrace.plan.manifest import forms
from headrace.run.checkpoint_look import problems
from headrace.run.home import Home
from headrace.run.planned import present, reader
from headrace.run.rename_record import kept_in
from headrace.run.sink_location import require_same_sink
from headrace.run.source_names import as_it_ran, former_sources
from headrace.run.state_store import key_order
from headrace.run.waiting_renames import waiting_renames
from headrace.spark.messages import finding_of
from headrace.spark.session_conf import applied

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan(
    project: Project, queries: Sequence[str] | None = None, *, spark: SparkSession | None = None
) -> list[Judgement]:
    """The judgement of each of `queries` (None: all), in one session; nothing is started, written or asked.

    A query that has never run is `same`. One that is wrong by itself is `forbidden`, with the findings as its notes.
    """
    chosen = [query for name, query in project.queries.items() if queries is None or name in queries]
    with borrowed(project, spark) as session, applied(session, project.target.state_store):
        return [_judged(project, query, session) for query in chosen]


def judgement_over(project: Project, query: Query, spark: SparkSession, home: Home) -> Judgement:
    """How `query` as written stands to what ran in `home`, which may have another name."""
    streams: dict[str, DataFrame] = {}
    with registered_tables(project, query, spark), applied(spark, key_order(home.checkpoint)):
        ran, called = as_it_ran(query, home.layout), former_sources(project, query, home.layout)
        frame = _frame(project, query, spark, home, streams)
        now = present(project, ran, frame, home, streams, called=called)
    known = forms(home.layout.manifest)
    return replace(
        judged(project, query, known, now, begun=home.checkpoint.last_committed is not None),
        checkpoint=home.checkpoint.id or "",
        ran=known[-1].digest if known else "",
        written=now.digest,
    )


def _judged(project: Project, query: Query, spark: SparkSession) -> Judgement:
    first = 0
    try:
        home = Home(layout=kept_in(project, query))
        errors = [each for each in concerning(project, [query.name]) if each.severity == "error"]
        if errors:
            raise CheckFailed(errors)
        if not query.sink.facts.durable or not home.begun:
            return Judgement(query=query.name, verdict="same", from_batch=0)
        committed = home.checkpoint.last_committed
        first = 0 if committed is None else committed + 1
        if broken := [each for each in problems(query, home.layout) if each.severity == "error"]:
            raise CheckFailed(broken)
        require_same_sink(project, query, home.layout)
        found = judgement_over(project, query, spark, home)
        return replace(found, notes=(*found.notes, *waiting_renames(project, query)))
    except HeadraceError as error:
        return _wrong(query, first, error.findings)
    except Exception as error:
        return _wrong(query, first, (finding_of(error, where=query.where, subject=f"query '{query.name}'"),))


def _frame(project: Project, query: Query, spark: SparkSession, home: Home, streams: dict[str, DataFrame]) -> DataFrame:
    """The result of the query over the tables that it last had."""
    tables = Tables(project, query, home.layout, spark)
    known = {name: number for name, number in tables.record.latest().items() if name in tables.declared}
    frames = tables.frames({name: number for name, number in known.items() if tables.version(name, number)})
    return build(project, query.transform, spark, reader(spark, query.trigger, streams), frames)


def _wrong(query: Query, first: int, findings: Sequence[Finding]) -> Judgement:
    return Judgement(query=query.name, verdict="forbidden", from_batch=first, notes=tuple(findings))
