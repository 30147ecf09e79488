"""Faults of declarations: raised at once in a script or notebook, collected while a project is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

from headrace.errors import Finding, ProjectError

_collected: ContextVar[list[Finding] | None] = ContextVar("headrace_declaration_faults", default=None)


@contextmanager
def collecting() -> Iterator[list[Finding]]:
    """Collect the faults of declarations made inside, so that all of a project's are reported together."""
    found: list[Finding] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def is_collecting() -> bool:
    """Whether a project is being loaded, so that its connectors are built and judged later."""
    return _collected.get() is not None


def report(finding: Finding) -> None:
    """Collect `finding`, or raise it as a ProjectError where nobody collects."""
    if is_collecting():
        cast("list[Finding]", _collected.get()).append(finding)
    else:
        raise ProjectError(finding)
