"""Event time as a query declares it: the windows in its text, and the policy for several watermarks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping

from headrace.errors import Finding
from headrace.model import Project, Query
from headrace.model.project import PythonTransform, View
from headrace.units import Duration

# `window(time, '1 hour')`, also with a slide; a session window has no end that is known before.
_WINDOW = re.compile(
    r"\bwindow\(\s*(?:[^(),]|\([^()]*\))+,\s*(?P<q>['\"])(?P<length>[^'\"]+)(?P=q)"
    r"(?:\s*,\s*(?P<p>['\"])(?P<slide>[^'\"]+)(?P=p))?(?P<more>\s*,)?"
)
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def window_lengths(project: Project, query: Query) -> set[tuple[str, str]]:
    """The lengths and slides of windows that stand in the texts of the query and its views."""
    views = [thing.transform for thing in project.upstream(query.transform) if isinstance(thing, View)]
    found = set()
    for transform in (query.transform, *views):
        try:
            text = inspect.getsource(transform.function) if isinstance(transform, PythonTransform) else transform.sql
        except (OSError, TypeError):
            continue
        for match in _WINDOW.finditer(text):
            try:
                Duration.parse(match["length"]), Duration.parse(match["slide"] or "1 s")
            except ValueError:
                continue
            if not match["more"]:
                found.add((match["length"], match["slide"] or ""))
    return found


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
