"""Which files of a project have changed since a running application has loaded them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeAlias

from headrace.model import Project

# What changes with each save of a file; None: there is none.
Mark: TypeAlias = tuple[int, int] | None


class LoadedFiles:
    """The files that declare a project, as they are when this is made."""

    def __init__(self, project: Project) -> None:
        self._marks = {file: mark_of(file) for file in _files(project)}

    @property
    def paths(self) -> Collection[Path]:
        """The files, by their absolute paths."""
        return self._marks.keys()

    def note(self) -> str:
        """A sentence that names the files that have changed since; empty where none has."""
        changed = sorted({file.name for file, mark in self._marks.items() if mark_of(file) != mark})
        if not changed:
            return ""
        has = "have" if len(changed) > 1 else "has"
        return (
            f"{', '.join(changed)} {has} changed since the application read them, and this order reads no change: "
            "headrace deploy"
        )


def _files(project: Project) -> Iterator[Path]:
    views, tables, queries = project.views.values(), project.tables.values(), project.queries.values()
    places = [thing.where for thing in (*project.inputs().values(), *queries)] + [project.target.where]
    for transform in (*(v.transform for v in views), *(t.transform for t in tables), *(q.transform for q in queries)):
        places.append(transform.where)
    for file in {place.file for place in places if place.file}:
        yield from {path.resolve() for path in (Path(file), project.root / file) if path.is_file()}
    yield from (Path(module.__file__).resolve() for module in project.modules if module.__file__)


def mark_of(file: Path) -> Mark:
    """Return the mark of a file as it is now."""
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size
