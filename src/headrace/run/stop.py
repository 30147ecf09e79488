"""Asking a run to stop: once for after the running batch, twice for now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """How often a run was asked to stop; safe to ask from any thread."""

    def __init__(self) -> None:
        self._asked = 0
        self._lock = threading.Lock()

    def ask(self) -> None:
        """Ask once more."""
        with self._lock:
            self._asked += 1

    @property
    def draining(self) -> bool:
        """Whether the running batches may still finish, and no more."""
        return self._asked == 1

    @property
    def now(self) -> bool:
        """Whether nothing is to be waited for."""
        return self._asked > 1

    def __bool__(self) -> bool:
        return self._asked > 0


@contextmanager
def stop_on_signals(request: StopRequest) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into asking `request`, as long as the block runs; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handler(_signal: int, _frame: FrameType | None) -> None:
        request.ask()

    before = {each: signal.signal(each, handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for each, old in before.items():
            signal.signal(each, old)
