"""How tests wait for what another thread, process or machine does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
# On two cores that four tests share, each with a JVM, what takes two seconds alone may take a minute.
PATIENCE_SECONDS = 240.0


def eventually(look: Callable[[], Result], seconds: float = PATIENCE_SECONDS, *, pause: float = 0.1) -> Result:
    """What `look` gives as soon as that is something; fails with the last that it gave after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (result := look()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} seconds; the last was {result!r}"
        time.sleep(pause)
    return result


def until(what: str, condition: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS, pause: float = 0.1) -> None:
    """Wait for a condition; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} seconds"
        time.sleep(pause)
