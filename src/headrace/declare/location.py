"""Where a declaration stands, as a person at this terminal would name the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import unwrap
from pathlib import Path
from types import FrameType
from typing import Any

from headrace.errors import Where


def shown(path: Path | str) -> str:
    """`path` as messages name it: relative to the working directory if it lies there, else absolute."""
    text = str(path)
    if text.startswith("<"):
        return text
    absolute, here = os.path.abspath(text), os.getcwd()
    return os.path.relpath(absolute, here) if absolute.startswith(here.rstrip(os.sep) + os.sep) else absolute


def of_frame(frame: FrameType) -> Where:
    """The file and line that `frame` is at."""
    return Where(file=shown(frame.f_code.co_filename), line=frame.f_lineno)


def of_function(function: Callable[..., Any], otherwise: Where) -> Where:
    """The file and line at which `function` begins, its decorators included."""
    code = getattr(unwrap(function), "__code__", None)
    return otherwise if code is None else Where(file=shown(code.co_filename), line=code.co_firstlineno)
