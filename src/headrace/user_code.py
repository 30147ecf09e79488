"""Where in the user's own code an exception came from."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import PurePath


def innermost(error: BaseException, is_own: Callable[[str], bool]) -> tuple[str, int | None] | None:
    """The file and line of the innermost call in a file that `is_own`; None if the trace has no such file."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename):
            return frame.filename, frame.lineno
    return None


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return "site-packages" in PurePath(file).parts
