"""Headrace: write the batch query, run it as a stream, and prove that the result is right."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# The rooms `check`, `load`, `plan`, `rebuild`, `run` and `verify` are imported first, so that the functions of the same
# names stay what `headrace.check` and the others mean.
from headrace import check as _check
from headrace import load as _load
from headrace import plan as _plan
from headrace import rebuild as _rebuild
from headrace import run as _run
from headrace import verify as _verify
from headrace.api import (
    abandon_rebuild,
    adopt,
    apply,
    check,
    discard_rebuild,
    discard_reset,
    discard_rewind,
    events,
    follow,
    inspect_checkpoint,
    inspect_offsets,
    inspect_watermark,
    late,
    load,
    pause,
    plan,
    plan_adoption,
    plan_reset,
    plan_rewind,
    rebuild,
    rebuild_status,
    repartition,
    reset,
    restart,
    resume,
    rewind,
    roll_back_rebuild,
    run,
    save_plan,
    show_state,
    start,
    start_all,
    status,
    stop,
    undo_reset,
    undo_rewind,
    verify,
)
from headrace.errors import Finding, HeadraceError

if TYPE_CHECKING:
    from headrace.declare import (
        available_now,
        broadcast,
        continuous,
        counter,
        every,
        once,
        query,
        real_time,
        sink,
        source,
        table,
        view,
    )
    from headrace.model import Project

__version__ = "0.1.0"

__all__ = [
    "Finding",
    "HeadraceError",
    "Project",
    "abandon_rebuild",
    "adopt",
    "apply",
    "available_now",
    "broadcast",
    "check",
    "continuous",
    "counter",
    "discard_rebuild",
    "discard_reset",
    "discard_rewind",
    "events",
    "every",
    "follow",
    "inspect_checkpoint",
    "inspect_offsets",
    "inspect_watermark",
    "late",
    "load",
    "once",
    "pause",
    "plan",
    "plan_adoption",
    "plan_reset",
    "plan_rewind",
    "query",
    "real_time",
    "rebuild",
    "rebuild_status",
    "repartition",
    "reset",
    "restart",
    "resume",
    "rewind",
    "roll_back_rebuild",
    "run",
    "save_plan",
    "show_state",
    "sink",
    "source",
    "start",
    "start_all",
    "status",
    "stop",
    "table",
    "undo_reset",
    "undo_rewind",
    "verify",
    "view",
]

del _check, _load, _plan, _rebuild, _run, _verify


def __getattr__(name: str) -> Any:
    """Import what only projects need when it is first asked for, so that a command starts quickly."""
    if name == "Project":
        return import_module("headrace.model").Project
    if name in __all__:
        declare = import_module("headrace.declare")
        declare.set_starter(start)
        return getattr(declare, name)
    raise AttributeError(f"module 'headrace' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
