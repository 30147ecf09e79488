"""Headrace: write the batch query, run it as a stream, and prove that the result is right."""

# The rooms `check`, `load`, `run` and `verify` are imported first, so that the functions of the same names below stay
# what `headrace.check` and the others mean.
from headrace import check as _check
from headrace import load as _load
from headrace import run as _run
from headrace import verify as _verify
from headrace.api import check, load, run, start, status, verify
from headrace.declare import available_now, every, once, query, set_starter, sink, source, table, view
from headrace.errors import Finding, HeadraceError
from headrace.model import Project

__version__ = "0.1.0"

__all__ = [
    "Finding",
    "HeadraceError",
    "Project",
    "available_now",
    "check",
    "every",
    "load",
    "once",
    "query",
    "run",
    "sink",
    "source",
    "start",
    "status",
    "table",
    "verify",
    "view",
]

del _check, _load, _run, _verify
set_starter(start)
