"""A project checked as far as it can be before start: its structure, then each query's analysed plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.check.analysed import analysed
from headrace.check.guarantee import Guarantee, guarantee
from headrace.check.plan import PlanFacts, plan_facts
from headrace.check.result import CheckResult
from headrace.check.structure import structure
from headrace.errors import Finding, HeadraceError
from headrace.model import Project, Query
from headrace.run.catalog import all_known
from headrace.run.frames import build
from headrace.run.state_store import applied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(
    project: Project, queries: Sequence[str] | None = None, *, spark: SparkSession | bool | None = None
) -> CheckResult:
    """Every finding about `project` and the guarantee of each of `queries` (None: all).

    `spark`: a session, None for one made for it, False for the structure alone. The guarantee of a query that is
    refused is not proven.
    """
    findings = list(structure(project))
    chosen = [query for name, query in project.queries.items() if queries is None or name in queries]
    facts: dict[str, PlanFacts] = {}
    if spark is not False and not any(finding.severity == "error" for finding in findings):
        findings += _analyse(project, chosen, None if spark is True else spark, facts)
    guarantees: dict[str, Guarantee] = {
        query.name: guarantee(project, query, facts.get(query.name)) for query in chosen
    }
    return CheckResult(findings=tuple(map(project.redacted_finding, findings)), guarantees=guarantees)


def _analyse(
    project: Project, queries: Sequence[Query], spark: SparkSession | None, facts: dict[str, PlanFacts]
) -> list[Finding]:
    from headrace.run.session import session

    own = spark is None
    spark = spark or session(project, purpose="short")
    try:
        with applied(spark, project.target.state_store):
            return [finding for query in queries for finding in _analysed(project, query, spark, facts)]
    finally:
        if own:
            spark.stop()


def _analysed(project: Project, query: Query, spark: SparkSession, facts: dict[str, PlanFacts]) -> Iterator[Finding]:
    try:
        with all_known(project, query, spark):
            frame = build(project, query.transform, spark, lambda source: source.connector.stream(spark, source.name))
            plan = plan_facts(frame)
            findings = list(analysed(query, frame, plan))
    except HeadraceError as fault:
        yield from fault.findings
        return
    if not any(finding.severity == "error" for finding in findings):
        facts[query.name] = plan
    yield from findings
