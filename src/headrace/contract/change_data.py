"""Change data: how a query's rows are changes of a table, and what a sink needs to know to apply them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

# The struct column that says of each row of a change frame what happens to it; the other columns are the table's.
CHANGE_COLUMN = "__change"
# The boolean column that says of each row of an ordinary result that it is deleted; other rows are written.
DELETE_COLUMN = "__delete"
FIELDS = ("operation", "sequence", "position", "unavailable", "source_time")

Operation: TypeAlias = Literal["upsert", "delete", "truncate", "none"]
ScdType: TypeAlias = Literal[1, 2]
SCD_TYPES: tuple[ScdType, ...] = (1, 2)
# The types whose order every engine agrees on; a STRING is compared by its bytes in UTF-8.
SEQUENCE_TYPES = ("BIGINT", "DECIMAL(38,0)", "TIMESTAMP", "DATE", "STRING")


def change_type(sequence_type: str) -> str:
    """Return the type of `CHANGE_COLUMN` in Spark's DDL.

    operation: `upsert` (insert, update, read of a snapshot: the row after), `delete` (the row before, of which perhaps
        the key alone is there), `truncate` (no columns: all that is older goes) or `none` (counted and ignored).
    sequence: the order of changes; never NULL where a sink sees it.
    position: which of two changes with one sequence is newer: the later offset, then the greater partition. Where the
        source has no offsets, as files, the offset is a hash of its row, so that each replay agrees; it is never NULL.
    unavailable: the columns whose value the source did not send, because it did not change.
    source_time: when the source made the change; NULL if it does not say.
    """
    return (
        f"STRUCT<operation: STRING, sequence: {sequence_type}, position: STRUCT<partition: INT, offset: BIGINT>, "
        "unavailable: ARRAY<STRING>, source_time: TIMESTAMP>"
    )


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """How a sink applies a query's changes to its table, so that the table equals the fold of all of them by sequence.

    The result's columns are those of the frame without `CHANGE_COLUMN`.

    keys: the columns by which a row is found.
    sequence_type: one of `SEQUENCE_TYPES`.
    scd_type: 1 keeps the newest row of each key; 2 keeps each with the sequences from and to which it held.
    tracked, untracked: with type 2, the columns of which another value begins a new interval: those that are tracked,
        or all but those that are not; other columns are changed in place. At most one of the two is given.
    ignore_null_updates: a NULL of an upsert leaves the column as it was.
    refuses_gaps: whether a change that leaves a column out ends its batch where no change before it has a value of it:
        the source sends the changes of a key in their order, so that the value is not yet to come.
    keep_deletes: the seconds for which a delete is remembered, so that an older upsert that arrives later is ignored.
    order_column, older_column: with type 1, the columns that a sink adds to the result: the order of the row's newest
        change as text, and as JSON the orders of those columns whose value is older; NULL where none is.
    start_column, end_column: with type 2, where the interval's two sequences are; the end of the current row is NULL.
    """

    keys: tuple[str, ...]
    sequence_type: str
    scd_type: ScdType = 1
    tracked: tuple[str, ...] | None = None
    untracked: tuple[str, ...] = ()
    ignore_null_updates: bool = False
    refuses_gaps: bool = False
    keep_deletes: int = 7 * 24 * 3600
    start_column: str = "__START_AT"
    end_column: str = "__END_AT"
    order_column: str = "__ORDER"
    older_column: str = "__OLDER"

    def tracked_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return those of the result's columns of which another value begins a new interval; keys never change."""
        begins = set(columns if self.tracked is None else self.tracked) - {*self.keys, *self.untracked}
        return tuple(name for name in columns if name in begins)


def column_mark(name: str) -> str:
    """Return what a column is called in JSON: letters and digits alone, so that no database reads it otherwise."""
    return f"c{name.encode().hex()}"
