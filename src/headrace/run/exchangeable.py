"""What rewrites whole directories of the storage, and is refused where Headrace does not know how to."""

from __future__ import annotations

from headrace.errors import CheckFailed, Finding
from headrace.model import Project, Query
from headrace.storage.location import is_remote


def require_local(project: Project, query: Query, doing: str, instead: str) -> None:
    """Raise CheckFailed if the storage is no directory of this machine, or one that is mounted here."""
    if is_remote(project.storage):
        raise CheckFailed(
            Finding(
                code="HR835",
                what=f"query '{query.name}' cannot be {doing}: that rewrites whole directories of the storage, which "
                f"Headrace does on local paths and not on {project.storage}",
                fix=instead,
                where=query.where,
            )
        )
