"""The names that a query or a source had before, as Python code gives them."""

from __future__ import annotations

from typing import Any

from headrace.declare.faults import report
from headrace.errors import Finding, Where


def former_names(given: Any, whose: str, where: Where) -> tuple[str, ...]:
    """One name, or several, the newest first; what is no name is reported."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if all(isinstance(name, str) and name.strip() for name in names):
        return names
    what = f"{whose}: renamed_from {given!r} is neither a name nor a list of names"
    report(Finding(code="HR548", what=what, fix='write renamed_from="its_old_name"', where=where))
    return ()
