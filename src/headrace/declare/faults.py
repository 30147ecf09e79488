"""Where a declaration stands, and its faults: raised at once in a script, collected while a project is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import unwrap
from pathlib import Path
from types import FrameType
from typing import Any, cast

from headrace.errors import Finding, ProjectError, Where

_collected: ContextVar[list[Finding] | None] = ContextVar("headrace_declaration_faults", default=None)


@contextmanager
def collect() -> Iterator[list[Finding]]:
    """Collect the faults of declarations made inside, so that all of a project's are reported together."""
    findings: list[Finding] = []
    token = _collected.set(findings)
    try:
        yield findings
    finally:
        _collected.reset(token)


def is_collecting() -> bool:
    """Return whether a project is being loaded, so that its connectors are built and judged later."""
    return _collected.get() is not None


def report(finding: Finding) -> None:
    """Collect `finding`.

    Raises:
        ProjectError: No project is being loaded.
    """
    if is_collecting():
        cast("list[Finding]", _collected.get()).append(finding)
    else:
        raise ProjectError(finding)


def fault(code: str, what: str, fix: str, where: Where) -> None:
    """Report the finding of these parts.

    Raises:
        ProjectError: No project is being loaded.
    """
    report(Finding(code=code, what=what, fix=fix, where=where))


def check_name(name: Any, where: Where, fix: str = "write it in quotes") -> str | None:
    """Return a name that was given; one that is not text is reported."""
    if name is not None and not isinstance(name, str):
        fault("HR117", f"the name {name!r} is not text", fix, where)
    return None if name is None else str(name)


def display_path(path: Path | str) -> str:
    """Return `path` as messages name it: relative to the working directory if it lies there, else absolute."""
    text = str(path)
    if text.startswith("<"):
        return text
    absolute, here = os.path.abspath(text), os.getcwd()
    return os.path.relpath(absolute, here) if absolute.startswith(here.rstrip(os.sep) + os.sep) else absolute


def where_of_frame(frame: FrameType) -> Where:
    return Where(file=display_path(frame.f_code.co_filename), line=frame.f_lineno)


def where_of_function(function: Callable[..., Any], otherwise: Where) -> Where:
    """Return the file and line at which `function` begins, its decorators included."""
    code = getattr(unwrap(function), "__code__", None)
    return otherwise if code is None else Where(file=display_path(code.co_filename), line=code.co_firstlineno)
