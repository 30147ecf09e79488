"""What sinks of change data share: how one is bound to the options of a query, and the faults of a batch."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.contract import ChangeOptions, Sink, SinkChanges, SinkContext
from headrace.errors import CheckpointError

Table = TypeVar("Table", bound=Sink)

WHOLE_ROWS_FIX = (
    "let the source send whole rows (PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL), take a new snapshot into "
    "another topic, and read that: headrace reset"
)


@dataclass(frozen=True, kw_only=True)
class TableChanges(SinkChanges, Generic[Table]):
    """Applies change data to the table of `sink`, which has the attributes `applies` and `key`."""

    sink: Table

    def bind(self, options: ChangeOptions) -> Table:
        bound = copy.copy(self.sink)
        key = (*options.keys, options.start_column) if options.scd_type == 2 else options.keys
        for name, value in (("applies", options), ("key", key)):
            object.__setattr__(bound, name, value)
        return bound


def lacking_value(row: str, table: str) -> str:
    """Return the fault of a change that leaves a value out which `table` does not have."""
    fault = f"a change of the row {row} leaves out large values that did not change, and {table} has none of that row: "
    return f"{fault}its key has changed, or it has come back into the filter of the query"


def lost_deletes(place: str, context: SinkContext) -> CheckpointError:
    """Return the fault that `place`, which remembers deletes, is gone though batches of the query are in."""
    fault = f"{place}, which remembers deletes and truncates of query '{context.query}', is gone, so that changes that "
    fix = "restore it from a copy; or recompute the result: headrace rebuild"
    return CheckpointError(code="HR410", what=f"{fault}come late could not be judged", fix=fix)
