"""A start that may be given up while it waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class GivenUp(BaseException):
    """A start that was given up has come to the end of its wait; nothing was started, and nobody waits for it."""


class Attempt:
    """One start, which may be given up while it makes its sink ready: there it can wait long for another driver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._may_end = False
        self._given_up = False

    @contextmanager
    def making_ready(self) -> Iterator[None]:
        """Let the start be given up inside the block; raises GivenUp at its end if it was."""
        with self._lock:
            self._may_end = True
        try:
            yield
        finally:
            with self._lock:
                self._may_end = False
        if self._given_up:
            raise GivenUp

    def give_up(self) -> bool:
        """Give the start up if it may be; it then starts nothing, whenever its wait ends."""
        with self._lock:
            self._given_up = self._given_up or self._may_end
            return self._given_up
