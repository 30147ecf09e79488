"""One answer for all pages that ask for the same after the same event."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

MOST = 100


class Shared:
    """Keeps answers for as long as `mark` is the same; while it is None nothing is kept.

    Pages are told of a change at the same moment, and ask at the same moment: who asks second waits for the first.
    """

    def __init__(self, mark: Callable[[], object]) -> None:
        self._mark = mark
        self._of: object = None
        self._answers: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The answer to `key`, made once."""
        mark = self._mark()
        if mark is None:
            return make()
        with self._lock:
            if mark != self._of or len(self._answers) >= MOST:
                self._of, self._answers = mark, {}
            answers = self._answers
            known = answers.get(key)
            if known is None:
                made = answers[key] = Future()
        if known is not None:
            return known.result()
        try:
            made.set_result(make())
        except BaseException as error:
            answers.pop(key, None)
            made.set_exception(error)
            raise
        return made.result()
