"""The connectors that are installed, found by their entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from headrace.errors import EnvironmentFault, Finding

ConnectorKind = Literal["source", "sink"]


@cache
def _entries(kind: ConnectorKind) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"headrace.{kind}s")}


def known(kind: ConnectorKind) -> tuple[str, ...]:
    """The names of the installed connectors of a kind."""
    return tuple(sorted(_entries(kind)))


def connector(kind: ConnectorKind, name: str) -> type[Any]:
    """The connector class registered as `name`; raises KeyError if there is none.

    Raises EnvironmentFault when it is registered but cannot be imported, as when its extra is not installed.
    """
    entry = _entries(kind)[name]
    try:
        loaded: type[Any] = entry.load()
    except ImportError as fault:
        raise EnvironmentFault(
            Finding(
                code="HR011",
                what=f"the {kind} '{name}' cannot be imported: {fault}",
                fix=f"install what it needs: pip install 'headrace[{name}]'",
            )
        ) from fault
    return loaded
