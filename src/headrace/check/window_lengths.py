"""The windows of event time that stand in the text of a query and of its views."""

from __future__ import annotations

import inspect
import re

from headrace.model import Project, Query
from headrace.model.project import View
from headrace.model.transform import PythonTransform
from headrace.units import Duration

# `window(time, '1 hour')`, also with a slide; a session window has no end that is known before.
_WINDOW = re.compile(
    r"\bwindow\(\s*(?:[^(),]|\([^()]*\))+,\s*(?P<q>['\"])(?P<length>[^'\"]+)(?P=q)"
    r"(?:\s*,\s*(?P<p>['\"])(?P<slide>[^'\"]+)(?P=p))?(?P<more>\s*,)?"
)


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
