"""A query that has never run, and one that ran and is no longer declared: the same under two names."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import CheckpointError, Finding
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout, latest_generation
from headrace.plan.form import QueryForm
from headrace.plan.manifest import forms


def renamed(project: Project, query: Query, form: QueryForm) -> Iterator[Finding]:
    """The finding for a query without a checkpoint whose rows one of another name has written; nothing otherwise.

    Begun anew, it would write all of them once more, into the same place.
    """
    for former in _undeclared(project):
        layout = QueryLayout(project.storage, former, latest_generation(project.storage, former))
        try:
            known = forms(layout.manifest)
            ran = QueryForm.of(known[-1].form or {}) if known else QueryForm()
        except (CheckpointError, TypeError, KeyError, ValueError):
            continue  # It is not declared, so nothing is told of what it has left.
        if "place" in ran.sink and ran.sink == form.sink:
            same = "means the same" if ran.digest == form.digest else "writes to the same place"
            yield Finding(
                code="HR547",
                what=f"query '{query.name}' has never run, and looks like '{former}' renamed, which is no longer "
                f"declared and {same}: it would read its sources from the beginning and write its rows once more",
                fix=f"give it `renamed_from: {former}`, which keeps its checkpoint; or write to another place; or, if "
                f"the rows of '{former}' are gone, remove {layout.home.parent}",
                where=query.where,
            )


def _undeclared(project: Project) -> list[str]:
    home = project.storage / "queries"
    names = sorted(path.name for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
    return [name for name in names if name not in project.queries]
