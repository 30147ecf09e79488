"""A project checked as far as it can be before start: its structure, each query's analysed plan, and its sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.build.catalog import registered_tables
from headrace.build.plan_builder import build
from headrace.check.analysed import analysed
from headrace.check.guarantee import guarantee
from headrace.check.places import places
from headrace.check.result import CheckResult
from headrace.check.structure import concerning, structure
from headrace.contract import SinkContext
from headrace.errors import Finding, HeadraceError
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout, latest_generation
from headrace.registry import known_failures
from headrace.run.application import known_facts
from headrace.spark.failures import finding_of_message
from headrace.spark.plans import PlanFacts, plan_facts
from headrace.spark.session_conf import applied

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check(
    project: Project,
    queries: Sequence[str] | None = None,
    *,
    spark: SparkSession | bool | None = None,
    connect: bool = True,
) -> CheckResult:
    """Every finding about `project` and the guarantee of each of `queries` (None: all) that is not refused.

    `spark`: a session, None for one made for it, False for the structure alone. `connect`: whether databases and other
    systems are asked if they would take the results. A query whose own structure is wrong is not analysed; it keeps
    no other from being so.
    """
    findings = list(structure(project))
    chosen = [query for name, query in project.queries.items() if queries is None or name in queries]
    beside = tuple(places(project))
    sound = [query for query in chosen if not _refused(concerning(project, [query.name], beside=beside))]
    facts: dict[str, PlanFacts] = {}
    if spark is not False and sound:
        findings += _analyse(project, sound, None if spark is True else spark, facts, connect)
    guarantees = {
        query.name: guarantee(project, query, facts.get(query.name))
        for query in sound
        if spark is False or query.name in facts
    }
    return CheckResult(findings=tuple(map(project.redacted_finding, findings)), guarantees=guarantees)


def _refused(findings: Iterator[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _analyse(
    project: Project,
    queries: Sequence[Query],
    spark: SparkSession | None,
    facts: dict[str, PlanFacts],
    connect: bool,
) -> list[Finding]:
    from headrace.build.project_session import session

    own = spark is None
    spark = spark or session(project, purpose="short")
    try:
        with applied(spark, project.target.state_store):
            return [finding for query in queries for finding in _analysed(project, query, spark, facts, connect)]
    finally:
        if own:
            spark.stop()


def _analysed(
    project: Project, query: Query, spark: SparkSession, facts: dict[str, PlanFacts], connect: bool
) -> Iterator[Finding]:
    """What is wrong with one query; `facts` gets it if nothing is."""
    try:
        with registered_tables(project, query, spark):
            frame = build(project, query.transform, spark, lambda source: source.connector.stream(spark, source.name))
            plan = plan_facts(frame)
            findings = list(analysed(query, frame, plan, calls_distinct=project.calls(query, "distinct")))
            if not _refused(iter(findings)):
                findings += _of_sink(project, query, frame, connect)
    except HeadraceError as error:
        yield from error.findings
        return
    except Exception as error:
        # What Spark says of one query must not hide what is to be said of the others.
        yield finding_of_message(
            str(error),
            subject=f"query '{query.name}'",
            where=query.where,
            connectors=project.connectors_of(query),
            installed=known_failures,
        )
        return
    if not _refused(iter(findings)):
        facts[query.name] = plan
    yield from findings


def _of_sink(project: Project, query: Query, frame: DataFrame, connect: bool) -> Iterator[Finding]:
    """Whether the sink would take the result."""
    layout = QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))
    context = SinkContext(
        query=query.name,
        generation=layout.generation,
        mode=query.mode,
        checkpoint=layout.checkpoint,
        **known_facts(project),
    )
    found = list(query.sink.check_result(frame, context))
    if connect and not _refused(iter(found)):
        found += query.sink.check_connection(frame, context)
    for finding in found:
        yield finding if finding.where.file else replace(finding, where=query.where)
