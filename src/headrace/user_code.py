"""The user's own code: for which query it runs, and where in it an exception came from."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePath

# The query, and the batch if it is called for one.
_SERVING: ContextVar[tuple[str, int | None] | None] = ContextVar("headrace_serving", default=None)


@contextmanager
def serving(query: str, batch: int | None = None) -> Iterator[None]:
    """What the user's code prints and logs inside the block belongs to this query, and to this batch."""
    before = _SERVING.set((query, batch))
    try:
        yield
    finally:
        _SERVING.reset(before)


def current() -> tuple[str, int | None] | None:
    """The query and the batch that the user's code runs for in this thread; None outside of it."""
    return _SERVING.get()


def innermost(error: BaseException, is_own: Callable[[str], bool]) -> tuple[str, int | None] | None:
    """The file and line of the innermost call in a file that `is_own`; None if the trace has no such file."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename):
            return frame.filename, frame.lineno
    return None


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return "site-packages" in PurePath(file).parts
