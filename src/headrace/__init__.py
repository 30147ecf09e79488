"""Headrace: write the batch query, run it as a stream, and prove that the result is right."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from headrace import inspect
from headrace.api import (
    adopt,
    apply,
    change,
    check,
    events,
    late,
    load,
    plan,
    rebuild,
    repair,
    repartition,
    reset,
    rewind,
    run,
    running,
    start,
    start_query,
    status,
    verify,
)

if TYPE_CHECKING:
    from headrace.declare.connectors import sink, source
    from headrace.declare.decorators import (
        available_now,
        broadcast,
        cdc,
        continuous,
        counter,
        every,
        once,
        query,
        real_time,
        table,
        view,
    )
    from headrace.model import Project
    from headrace.sampling import preview

__version__ = "0.2.0"

__all__ = [
    "Project",
    "adopt",
    "apply",
    "available_now",
    "broadcast",
    "cdc",
    "change",
    "check",
    "continuous",
    "counter",
    "events",
    "every",
    "inspect",
    "late",
    "load",
    "once",
    "plan",
    "preview",
    "query",
    "real_time",
    "rebuild",
    "repair",
    "repartition",
    "reset",
    "rewind",
    "run",
    "running",
    "sink",
    "source",
    "start",
    "status",
    "table",
    "verify",
    "view",
]


if not TYPE_CHECKING:  # A type checker that saw it would take a misspelt name for one that exists.

    def __getattr__(name: str) -> object:
        """Import what only projects need when it is first asked for, so that a command starts quickly."""
        if name == "Project":
            return import_module("headrace.model").Project
        if name == "preview":
            return import_module("headrace.sampling").preview
        if name in __all__:
            import_module("headrace.declare.assembly").set_starter(start_query)
            room = "connectors" if name in ("sink", "source") else "decorators"
            return getattr(import_module(f"headrace.declare.{room}"), name)
        # Python suggests a name by these.
        raise AttributeError(f"module 'headrace' has no attribute '{name}'", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted(__all__)
