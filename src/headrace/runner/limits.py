"""What of a changed project a running application cannot take: settings, jars, packages, variables of its process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from headrace.control.deploys import DeployRequest
from headrace.errors import NOWHERE, Finding
from headrace.frames.project_session import jars_of
from headrace.model import Project
from headrace.model.project import Target
from headrace.runner.loaded_files import mark_of
from headrace.user_code import is_installed

_FIX = "let the application stop after its batches and begin again: headrace deploy --restart"
_OTHER_START = "correct it in your shell; or start the application with it: headrace stop, then headrace run"


class ImportedFiles:
    """The files of the modules that the process has imported, as they are when this is made."""

    def __init__(self) -> None:
        files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
        self._marks = {name: (Path(file), mark_of(Path(file))) for name, file in files.items() if file}

    def list_changed(self, root: Path) -> Iterator[str]:
        """Yield the packages and modules whose files have changed; Python files below `root` are read again."""
        for name, (file, mark) in self._marks.items():
            is_read_again = file.suffix == ".py" and file.is_relative_to(root) and not is_installed(str(file))
            if not is_read_again and mark_of(file) != mark:
                yield name if file.suffix != ".py" and not is_installed(str(file)) else name.partition(".")[0]


def list_limits(running: Project, project: Project, imported: ImportedFiles) -> Iterator[Finding]:
    """Report each change that only another start of the application takes."""
    before, now = (one.loaded.target if one.loaded else one.target for one in (running, project))
    for setting in _changed_settings(before, now):
        yield _finding(f"{setting} of target '{now.name}' has changed", now)
    if new := {jars.name for jars in jars_of(project)} - {jars.name for jars in jars_of(running)}:
        yield _finding(f"its session has no jars of {', '.join(sorted(new))}")
    for name in sorted(set(imported.list_changed(running.root))):
        yield _finding(f"the files of '{name}', which Python has imported, have changed")


def list_other_settings(running: Project, project: Project, request: DeployRequest) -> Iterator[Finding]:
    """Report what the asker has set in another way than who started the application, and no new start changes."""
    target = (running.loaded or running).target
    if request.target and request.target != target.name:
        yield _finding(f"it runs with target '{target.name}', and not with '{request.target}'", fix=_OTHER_START)
    for name in () if project.loaded is None else request.other_variables(project.loaded.variables):
        problem = f"the variable '{name}' has another value in the process of the application"
        yield _finding(problem, fix=_OTHER_START)


def _changed_settings(before: Target, now: Target) -> Iterator[str]:
    """Yield the settings of a target that differ, by the keys that a user writes."""
    for field in fields(Target):
        was, is_ = getattr(before, field.name), getattr(now, field.name)
        if not field.compare or field.name == "where" or was == is_:
            continue
        if isinstance(was, Mapping):
            yield from (f"'{key}'" for key in sorted({*was, *is_}) if was.get(key) != is_.get(key))
        elif field.name == "operations":
            yield from (f"'{part.name}'" for part in fields(was) if getattr(was, part.name) != getattr(is_, part.name))
        else:
            yield f"'{field.name}'"


def _finding(what: str, target: Target | None = None, *, fix: str = _FIX) -> Finding:
    where = NOWHERE if target is None else target.where
    return Finding(code="HR854", what=f"the running application cannot take a change: {what}", fix=fix, where=where)
