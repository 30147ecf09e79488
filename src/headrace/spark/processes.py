"""A process with everything that it has started, ended at once."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def kill_all(pid: int) -> None:
    """SIGKILL for a process of ours and all that come from it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # It starts nothing more while we look.
    for each in (*descendants(pid), pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The processes that `pid` has started, and those that they have started, the nearest first."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found = list(children.get(pid, ()))
    for each in found:  # which grows as it is read
        found += children.get(each, ())
    return found


def _parents() -> list[tuple[int, int]]:
    if not (PROC / "self").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
        return [(int(line.split()[0]), int(line.split()[1])) for line in listed.splitlines() if line.strip()]
    found = []
    for place in PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            # The name in brackets may hold anything.
            found.append((int(place.name), int((place / "stat").read_text().rpartition(")")[2].split()[1])))
    return found
