"""Read a project: YAML, Python modules, SQL files, environment and targets become one frozen model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.load.project import load

__all__ = ["load"]

_MODULES = {"load": "headrace.load.project"}


def __getattr__(name: str) -> Any:
    """Import the loader when it is first asked for: help needs none."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'headrace.load' has no attribute '{name}'")
