"""Read a project: YAML, Python modules, SQL files, environment and targets become one frozen model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.loader.project import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """Import the loader when it is first asked for: help needs none."""
    if name == "load":
        return import_module("headrace.loader.project").load
    raise AttributeError(f"module 'headrace.loader' has no attribute '{name}'")
