"""Commands of Headrace that another process of it starts, and that end with it, however that comes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Set for a process whose input is a pipe that its parent holds.
_LIFELINE = "HEADRACE_LIFELINE"


def start_child(command: Sequence[str], *, env: Mapping[str, str] = os.environ, **more: Any) -> subprocess.Popen[Any]:
    """Start a command of Headrace, in a session of its own, that ends when this process ends, however that comes."""
    more = {**more, "env": {**env, _LIFELINE: "1"}, "stdin": subprocess.PIPE, "start_new_session": True}
    child: subprocess.Popen[Any] = subprocess.Popen(command, **more)
    lifeline, child.stdin = child.stdin, None  # `communicate` would close it.
    assert lifeline is not None
    weakref.finalize(child, lifeline.close)
    return child


def end_with_parent() -> None:
    """End this process as SIGTERM does, once the one that has called `start_child` is gone."""
    if os.environ.pop(_LIFELINE, ""):
        await_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))


def await_parent(end: Callable[[], None]) -> None:
    """Call `end`, in a thread, once the process that holds the input of this one has closed it without a word."""

    def wait() -> None:
        if not os.read(0, 1):
            end()

    threading.Thread(target=wait, name="parent", daemon=True).start()
