"""Which changes of a query were begun, and are to be ended, taken back or made final."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.changes.adopt import Adopt
from headrace.changes.change import Change
from headrace.changes.rebuild import Rebuild
from headrace.changes.reset import Reset
from headrace.changes.rewind import Rewind
from headrace.model import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AnyChange: TypeAlias = Change[Any, Any]
_KINDS: tuple[type[AnyChange], ...] = (Rebuild, Rewind, Reset, Adopt)


def changes(project: Project, query: str, *, spark: SparkSession | None = None) -> list[AnyChange]:
    """The changes of `query` that were begun and of which something is kept; what was cut off first, then the newest.

    Raises ProjectError and CheckpointError.
    """
    statuses = [(change, change.status) for change in (kind(project, query, spark=spark) for kind in _KINDS)]
    begun = [(status.is_cut_off, status.begun, change) for change, status in statuses if status is not None]
    return [change for _, _, change in sorted(begun, key=lambda entry: entry[:2], reverse=True)]
