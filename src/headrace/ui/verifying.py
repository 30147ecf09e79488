"""What the page of a query starts: a verify, or a search for late rows; one process at a time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias

from headrace.children import start_child
from headrace.model import Project
from headrace.storage import json_lines

SECRET = "HEADRACE_UI_TOKEN"
LATE_ROWS = 100
Work: TypeAlias = Literal["verify", "late"]
_DOING = {"verify": "is being verified", "late": "is being searched for late rows"}


class AlreadyRunning(Exception):
    """Work that was asked for while other work runs; its text names that."""


class Verifying:
    """Starts `headrace verify`, whose verdict comes into the history, or `headrace late`; what they say is kept."""

    def __init__(self, project: Project, command: Sequence[str] = (sys.executable, "-m", "headrace")) -> None:
        self._project = project
        self._command = command
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._state: dict[str, Any] = {"work": None, "query": None, "state": "idle", "since": None, "said": ""}
        self._state["rows"] = []

    def start(self, query: str, work: Work = "verify") -> dict[str, Any]:
        """Start it; raises AlreadyRunning, and OSError where it cannot be started."""
        with self._lock:
            if self._child is not None:
                doing = _DOING[self._state["work"]]
                raise AlreadyRunning(f"query '{self._state['query']}' {doing}; wait for its end")
            place = ("-C", str(self._project.root), "--target", self._project.target.name)
            bound = ("--limit", str(LATE_ROWS)) if work == "late" else ()
            nice = ("nice", "-n", "19") if shutil.which("nice") else ()
            # Ctrl-C at the dashboard ends the verify by `close`, in its order.
            self._child = start_child(
                [*nice, *self._command, work, query, *place, "--json", *bound],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={name: value for name, value in os.environ.items() if name != SECRET},
            )
            since = datetime.now(timezone.utc).isoformat()
            self._state = {"work": work, "query": query, "state": "running", "since": since, "said": "", "rows": []}
            threading.Thread(target=self._wait, args=(self._child,), name="verify", daemon=True).start()
            return dict(self._state)

    def state(self) -> dict[str, Any]:
        """Return which query is or was verified last, and how that went."""
        with self._lock:
            return dict(self._state)

    def close(self) -> None:
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
            lines = list(json_lines.objects_of(out))
            rows = [line for line in lines if line.get("event") == "late row"]
            sentence = next((str(line[key]) for line in lines for key in ("verdict", "sentence") if key in line), "")
            failed = _last_sentence(errors) or f"it ended with {child.returncode}"
            self._state |= {"state": "ended" if sentence else "failed", "said": sentence or failed, "rows": rows}


def _last_sentence(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if "HR" in line] or errors.strip().splitlines()
    return lines[0][:500] if lines else ""
