"""What the processes of a cluster have printed: its own, and the executors of each application."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.cluster import daemons
from headrace.errors import Finding, PlatformError, nearest

_TELLING = re.compile(r"Unrecognized |Could not find |(?:\w+\.)+\w*(?:Exception|Error)\b")


@dataclass(frozen=True, kw_only=True)
class Log:
    """The files of one process. name: as `logs` takes it, `worker-1` or `app-20260101000000-0000/0`."""

    name: str
    files: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)


def logs(home: Path) -> tuple[Log, ...]:
    """All of them: masters and workers, and then executors, those of the oldest application first."""
    own = [Log(name=file.stem, files=(file,)) for file in sorted(daemons.log_file(home, "x").parent.glob("*.log"))]
    return (*own, *_executors(home))


def named(home: Path, name: str) -> Log:
    """The log of that name; the number of an executor alone means that of the newest application.

    Raises PlatformError where there is none.
    """
    known = logs(home)
    newest = [each for each in known if each.name.rpartition("/")[2] == name and "/" in each.name]
    for each in (*known, *newest[-1:]):
        if name in (each.name, each.name.rpartition("/")[2] if each in newest[-1:] else each.name):
            return each
    fix = nearest(name, [each.name for each in known])
    raise PlatformError(Finding(code="HR824", what=f"the cluster in {home} has no log of '{name}'", fix=fix))


def executors_of(home: Path, application: str) -> tuple[Log, ...]:
    """The logs of the executors of one application, those that have ended too."""
    return tuple(each for each in _executors(home) if each.name.startswith(f"{application}/"))


def reason(log: Log) -> str:
    """Why a process has ended, by its last words that tell: an exception, or what Java does not know."""
    lines = [line.strip() for file in log.files for line in file.read_text(errors="replace").splitlines()]
    telling = [line for line in lines if _TELLING.search(line)]
    return next(iter([*telling[-1:], *filter(None, lines[-1:])]), "")


def _executors(home: Path) -> Iterator[Log]:
    found = sorted(home.glob("work/*/app-*/*/"), key=lambda place: (place.parent.name, _number(place.name)))
    for place in found:
        files = tuple(file for file in (place / "stdout", place / "stderr") if file.exists())
        if files:
            yield Log(name=f"{place.parent.name}/{place.name}", files=files)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
