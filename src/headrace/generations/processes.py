"""Whether a process still lives, distinguished from a later one that was given the same number."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_START_TIME = 19  # the 22nd field of /proc/<pid>/stat, counted after the name in brackets, which may hold anything


def birth(pid: int) -> str | None:
    """A mark of when the process began, the same each time it is asked for; None when there is no such process.

    A zombie counts as gone: it has ended, and only its parent has not asked how.
    """
    return _from_proc(pid) if Path("/proc/self/stat").exists() else _from_ps(pid)


def _from_proc(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return None if fields[0] in "ZX" else f"{_boot()}/{fields[_START_TIME]}"


def _from_ps(pid: int) -> str | None:
    listed = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, started = listed.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def _boot() -> str:
    """Start times count from the machine's boot, so the boot belongs to the mark."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""
