"""The policy for several watermarks of one query: what may be declared, and what a checkpoint holds to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.errors import Finding
from headrace.model import Project, Query

POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
POLICIES = ("min", "max")


def declared_policy(project: Project) -> Iterator[Finding]:
    """Whether the project's setting is one that Spark knows; Spark says so only when a query starts."""
    declared = project.target.spark.get(POLICY)
    if declared is not None and declared.lower() not in POLICIES:
        yield Finding(
            code="HR274",
            what=f"{POLICY} is '{declared}'",
            fix="write min, which waits for the slowest stream, or max, which drops what comes behind the fastest",
            where=project.target.where,
        )


def kept_policy(query: Query, kept: Mapping[str, str], wanted: str) -> Iterator[Finding]:
    """Whether `wanted` is the policy among the settings that the last batch of a checkpoint was planned with.

    Spark continues with the old one and says so only in its log.
    """
    begun = kept.get(POLICY)
    if begun is not None and begun.lower() != wanted.lower():
        yield Finding(
            code="HR274",
            what=f"query '{query.name}' has several watermarks and was begun with the policy {begun}, not {wanted}",
            fix=f"set {POLICY} to {begun} again, or reset the query (headrace reset QUERY)",
            where=query.where,
        )
