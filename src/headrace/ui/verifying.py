"""A verify that the page of a query has started: a process of its own at the lowest priority, one at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from headrace.model import Project

SECRET = "HEADRACE_UI_TOKEN"
_LONGEST = 1_000_000


class AlreadyRunning(Exception):
    """A verify that was asked for while another one runs; its text names that."""


class Verifying:
    """Starts `headrace verify`, whose verdict comes into the history; what it says otherwise is kept here."""

    def __init__(self, project: Project, command: Sequence[str] = (sys.executable, "-m", "headrace")) -> None:
        self._project = project
        self._command = command
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._state: dict[str, Any] = {"query": None, "state": "idle", "since": None, "said": ""}

    def start(self, query: str) -> dict[str, Any]:
        """Start it; raises AlreadyRunning, and OSError where it cannot be started."""
        with self._lock:
            if self._child is not None:
                raise AlreadyRunning(f"query '{self._state['query']}' is being verified; wait for its verdict")
            place = ("-C", str(self._project.root), "--target", self._project.target.name)
            nice = ("nice", "-n", "19") if shutil.which("nice") else ()
            self._child = subprocess.Popen(
                [*nice, *self._command, "verify", query, *place, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={name: value for name, value in os.environ.items() if name != SECRET},
                # Ctrl-C at the dashboard ends the verify by `close`, in its order.
                start_new_session=True,
            )
            since = datetime.now(timezone.utc).isoformat()
            self._state = {"query": query, "state": "running", "since": since, "said": ""}
            threading.Thread(target=self._wait, args=(self._child,), name="verify", daemon=True).start()
            return dict(self._state)

    def state(self) -> dict[str, Any]:
        """Which query is or was verified last, and how that went."""
        with self._lock:
            return dict(self._state)

    def close(self) -> None:
        """End what runs."""
        with self._lock:
            child = self._child
        if child is not None:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()

    def _wait(self, child: subprocess.Popen[str]) -> None:
        out, errors = child.communicate()
        with self._lock:
            self._child = None
            said, failed = _verdict(out[:_LONGEST]), _last_sentence(errors) or f"it ended with {child.returncode}"
            self._state |= {"state": "ended" if said else "failed", "said": said or failed}


def _verdict(out: str) -> str:
    """The verdict that was printed, in a word; empty without one."""
    for line in out.splitlines():
        try:
            found = json.loads(line)
            return str(found["verdict"])
        except (ValueError, KeyError, TypeError):
            continue
    return ""


def _last_sentence(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if "HR" in line] or errors.strip().splitlines()
    return lines[0][:500] if lines else ""
