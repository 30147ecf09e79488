"""A query as written against what ran: all that is checked before a start, by a start and by `plan`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.checkpoint.sources import SourceIds
from headrace.checks.analysed import check_analysed
from headrace.checks.structure import check_structure_of
from headrace.contract import overrides
from headrace.errors import CheckpointError, Fenced, Finding, HeadraceError, QueryFailed
from headrace.frames.plan_builder import registered_tables
from headrace.frames.project_session import borrow
from headrace.generations.facts import StartFacts
from headrace.generations.log import QueryLayout, require_live
from headrace.generations.manifest import QueryForm
from headrace.model import Project, Query
from headrace.planner.difference import worst
from headrace.planner.ends import compare_settings
from headrace.planner.forming import read_settings
from headrace.planner.verdict import Judgement, list_refusals
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.messages.refusals import finding_of
from headrace.spark.plans.analysed import plan_facts
from headrace.starter.judge import compare_result
from headrace.starter.prepare import (
    compare_with_read,
    identify_sources,
    list_start_blockers,
    require_continuable,
    require_planned,
    require_sound,
    require_state,
)
from headrace.starter.recovery import unmoved_findings
from headrace.starter.rename import waiting_renames
from headrace.starter.sink_work import check_sink
from headrace.starter.state_store import query_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    spark: SparkSession | None = None,
    connect: bool = True,
) -> list[Judgement]:
    """The judgement of each of `queries` (None: all), in one session; nothing is started or written.

    One that `run` would refuse is `forbidden`, with the findings as its notes. connect: whether its sources and its
    sink are asked; one that does not answer is a note.
    """
    chosen = [query for name, query in project.queries.items() if queries is None or name in queries]
    with borrow(project, spark) as session:
        judgements = []
        for query in chosen:
            facts = StartFacts.read(project, query)
            with apply_settings(session, query_settings(facts, session)):
                judgements.append(_judge(facts, session, connect))
        return judgements


def session_refusals(project: Project, query: Query, spark: SparkSession) -> Iterator[Finding]:
    """Why a session of the user's cannot continue a query: its settings are others than those that its batches had.

    Only what was recorded is read; no plan is made.
    """
    facts = StartFacts.read(project, query)
    if facts.last_committed is None or not facts.revisions or not query.sink.facts.durable:
        return
    with apply_settings(spark, query_settings(facts, spark)):
        before = QueryForm.of(facts.revisions[-1].form or {})
        settings = read_settings(spark, before.settings)
    differences = tuple(compare_settings(before, settings))
    judgement = Judgement(
        query=query.name, verdict=worst(differences), from_batch=facts.next_batch, differences=differences
    )
    yield from list_refusals(query, judgement)


def _judge(facts: StartFacts, spark: SparkSession, connect: bool) -> Judgement:
    project, query, first = facts.project, facts.query, 0
    try:
        require_sound(check_structure_of(project, [query.name]))
        if not query.sink.facts.durable:
            return Judgement(query=query.name, verdict="same", from_batch=0)
        first = facts.next_batch
        require_continuable(facts)
        with registered_tables(project, query, spark):
            judgement, frame = compare_result(facts, spark)
            notes = [*judgement.notes, *waiting_renames(project, query)]
            for error in list_start_blockers(facts, spark, notes):
                notes += error.findings
            notes += _check_planned(facts)
            notes += _check_sources(facts, spark) if connect else ()
            notes += _of_result(query, frame, facts, calls_distinct=project.calls(query, "distinct"))
            if not _has_refusal(notes):  # What a sink says of another query's checkpoint would mislead.
                notes += check_sink(facts, frame, connect=connect)
            verdict = "forbidden" if _has_refusal(notes) else judgement.verdict
            return replace(judgement, notes=tuple(dict.fromkeys(notes)), verdict=verdict)
    except HeadraceError as error:
        wrong = error.findings
    except Exception as error:
        wrong = (finding_of(error, where=query.where, subject=f"query '{query.name}'"),)
    return Judgement(query=query.name, verdict="forbidden", from_batch=first, notes=tuple(wrong))


def _check_planned(facts: StartFacts) -> Iterator[Finding]:
    """Report whether the batch that is planned can be made; a start rewrites the paths of a moved project first."""
    try:
        if not any(True for _ in unmoved_findings(facts)):
            require_planned(facts)
    except HeadraceError as error:
        yield from error.findings


def _check_sources(facts: StartFacts, spark: SparkSession) -> Iterator[Finding]:
    """Report what a start would say of each source; one that does not answer may do so by then."""
    kept = facts.source_ids
    for source in facts.sources:
        try:
            source.connector.check_connection(spark)
            yield from compare_with_read(facts, source, kept, source.connector.object_ids(spark), spark)
        except HeadraceError as error:
            for finding in error.findings:
                yield (finding if finding.where.file else finding.reword(where=source.where)).with_severity("warning")


def _of_result(query: Query, frame: DataFrame, facts: StartFacts, *, calls_distinct: bool) -> Iterator[Finding]:
    """What a start would refuse of the result, by its plan and its state."""
    plan = plan_facts(frame)
    findings = check_analysed(query, frame, plan, calls_distinct=calls_distinct)
    yield from (finding for finding in findings if finding.severity == "error")
    try:
        if plan.keeps_state:
            require_state(facts)
    except CheckpointError as error:
        yield from error.findings


def _has_refusal(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def find_outside_change(
    project: Project, query: Query, layout: QueryLayout, spark: SparkSession
) -> HeadraceError | None:
    """Find what was done from outside to a query that runs: another process has changed it, or recreated what it reads.

    The ids of new topics and tables are kept. Raises SourceError where a system does not answer, and CheckpointError.
    """
    try:
        require_live(layout)
    except Fenced as error:
        return error
    if not any(overrides(source.connector, "object_ids") for source in project.sources_of(query)):
        return None
    facts = StartFacts(project=project, query=query, register=None, layout=layout)
    ids, findings = identify_sources(facts, spark)
    if not _has_refusal(findings):
        SourceIds(layout.home).write(ids)
    return next((QueryFailed(finding) for finding in findings if finding.severity == "error"), None)
