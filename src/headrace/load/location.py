"""Where a project lies: its root, its `headrace.yml` and its Python files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from headrace.declare.location import shown
from headrace.errors import Finding, ProjectError, Where

DOCUMENTS = ("headrace.yml", "headrace.yaml")
_NOT_OURS = re.compile(r"(test_.*|.*_test|conftest|setup|_.*)\.py\Z")
_MENTIONS = re.compile(r"\bheadrace\b")


@dataclass(frozen=True, kw_only=True)
class ProjectFiles:
    """The files of a project.

    modules: the Python files that are loaded when `headrace.yml` does not name them: those at the top that mention
        headrace, for no other can declare anything, and a generator of data beside them must not be run by a load.
    passed_over: Python files at the top that are not loaded.
    """

    root: Path
    document: Path | None
    modules: tuple[Path, ...]
    passed_over: tuple[Path, ...] = ()


def find(path: str | Path) -> ProjectFiles:
    """The project at `path`: a directory, its `headrace.yml` or one Python file. Raises ProjectError if none is."""
    given = Path(path).expanduser()
    if given.is_file() and given.suffix == ".py":
        return ProjectFiles(root=given.resolve().parent, document=None, modules=(given.resolve(),))
    if given.is_file() and given.suffix in {".yml", ".yaml"}:
        return _directory(given.resolve().parent, given.resolve())
    if given.is_dir():
        root = given.resolve()
        # A directory or a broken link of that name is reported when it is read.
        there = [root / name for name in DOCUMENTS if os.path.lexists(root / name)]
        document = there[0] if there else None
        if len(there) > 1:
            what = f"{' and '.join(DOCUMENTS)} are both there, and only one can be read"
            where = Where(file=shown(there[1]), line=1)
            raise ProjectError(Finding(code="HR101", what=what, fix="keep one of the two", where=where))
        return _directory(root, document)
    what = "is neither a directory, a headrace.yml nor a Python file" if given.exists() else "does not exist"
    fix = "give the directory of a project, or make one: headrace init NAME"
    raise ProjectError(Finding(code="HR100", what=f"there is no project at '{shown(given)}', which {what}", fix=fix))


def _directory(root: Path, document: Path | None) -> ProjectFiles:
    files = sorted(root.glob("*.py"))
    modules = [file for file in files if not _NOT_OURS.match(file.name) and _mentions_headrace(file)]
    place = ProjectFiles(
        root=root,
        document=document,
        modules=tuple(modules),
        passed_over=tuple(file for file in files if file not in modules),
    )
    if document is None and not modules:
        raise ProjectError(nothing_at(place))
    return place


def nothing_at(place: ProjectFiles) -> Finding:
    """The finding that nothing is declared at `place`, with what was looked for."""
    files = [file.name for file in (*place.modules, *place.passed_over)]
    python = f"Python files that declare a query (found: {', '.join(files)})" if files else "Python files (found: none)"
    return Finding(
        code="HR100",
        what=f"there is no project in '{shown(place.root)}'; looked for {', '.join(DOCUMENTS)} and {python}",
        fix="go to a project's directory, or make one: headrace init NAME",
    )


def _mentions_headrace(file: Path) -> bool:
    try:
        return bool(_MENTIONS.search(file.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return True
