"""The names under which Spark's checkpoint knows a source that a query reads in several places of its plan.

The first use has the source's own name, so that a query with one use keeps its checkpoint; the others follow the order
of the plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_FURTHER = re.compile(r"(?P<name>.+)__(?P<number>[2-9]|[1-9][0-9]+)\Z")


def use_name(source: str, number: int) -> str:
    """The name of the `number`-th use of a source, counted from 1."""
    return source if number == 1 else f"{source}__{number}"


def source_of(use: str) -> str:
    """The source whose further use has this name, or the name itself."""
    match = _FURTHER.match(use)
    return match.group("name") if match else use


def further_uses(sources: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Those of the `known` names that are further uses of `sources`, in order."""
    own = set(sources)
    return tuple(sorted(name for name in known if name not in own and source_of(name) in own))
