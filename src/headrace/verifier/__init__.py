"""Read-only proofs that a sink holds the batch answer over the committed prefix of its sources."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.verifier.late_rows import late
    from headrace.verifier.proof import verify
    from headrace.verifier.verdict import Difference, InputRow, Lateness, LateRow, OperatorLateRows, Replayed, Verdict

__all__ = ["Difference", "InputRow", "LateRow", "Lateness", "OperatorLateRows", "Replayed", "Verdict", "late", "verify"]

_MODULES = tuple(f"headrace.verifier.{name}" for name in ("verdict", "proof", "late_rows"))


def __getattr__(name: str) -> Any:
    """Import the proof when it is first asked for: most commands prove nothing."""
    if name in __all__:
        return next(getattr(module, name) for module in map(import_module, _MODULES) if hasattr(module, name))
    raise AttributeError(f"module 'headrace.verifier' has no attribute '{name}'")
