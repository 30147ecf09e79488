"""What tests of streaming queries are made of: a query's answer over given rows, and its run over batches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.batch_answer import evaluate
    from headrace.testing.events import Clock, Crash, CrashBeforeCommit, Pause, Refresh, Restart, Watermark
    from headrace.testing.fuzzing import FuzzResult, fuzz, fuzzed
    from headrace.testing.rows import ResultRow, ResultRows
    from headrace.testing.timelines import TimelineRun, timeline

__all__ = [
    "Clock",
    "Crash",
    "CrashBeforeCommit",
    "FuzzResult",
    "Pause",
    "Refresh",
    "Restart",
    "ResultRow",
    "ResultRows",
    "TimelineRun",
    "Watermark",
    "evaluate",
    "fuzz",
    "fuzzed",
    "timeline",
]

_MODULES = tuple(f"headrace.testing.{name}" for name in ("rows", "batch_answer", "events", "timelines", "fuzzing"))


def __getattr__(name: str) -> Any:
    """Import a part when it is first used: a driver in a test needs none of them."""
    if name in __all__:
        return next(getattr(module, name) for module in map(import_module, _MODULES) if hasattr(module, name))
    raise AttributeError(f"module 'headrace.testing' has no attribute '{name}'")
