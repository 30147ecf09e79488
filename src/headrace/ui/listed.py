"""Several projects for one board, each with a key for its addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Finding, HeadraceError
from headrace.model import Project
from headrace.redaction import redacted


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A project of the board. key: its name in addresses. findings: why it cannot be shown, if `project` is None."""

    key: str
    name: str
    directory: Path
    project: Project | None = None
    findings: tuple[Finding, ...] = ()


def list_projects(loaded: Iterable[tuple[Path, Project | HeadraceError]]) -> list[Listed]:
    """Return the projects with a key each: its name, with a number where another one has it already."""
    projects: dict[str, Listed] = {}
    for directory, project in loaded:
        name = project.name if isinstance(project, Project) else directory.name
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-") or "project"
        key, number = plain, 1
        while key in projects:
            number += 1
            key = f"{plain}-{number}"
        if isinstance(project, Project):
            projects[key] = Listed(key=key, name=name, directory=directory, project=project)
        else:
            projects[key] = Listed(
                key=key, name=name, directory=directory, findings=tuple(map(_redacted, project.findings))
            )
    return list(projects.values())


def _redacted(finding: Finding) -> Finding:
    return finding.reword(what=redacted(finding.what), fix=redacted(finding.fix))
