"""What is declared of a query whose rows are changes of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.contract.change_data import ScdType
from headrace.units import Duration

KEEP_DELETES = Duration("7 days", 7 * 86_400.0)


@dataclass(frozen=True, kw_only=True)
class ChangeData:
    """How a query's rows change the table of its sink; the options have the names of Spark's flows, and Lakeflow's.

    keys: The columns of the result by which a row is found.
    sequence_by: The columns of the source by whose values changes are ordered, one after the other; by default the
        source says it.
    apply_as_deletes: A condition of Spark SQL over the source's columns; a row that meets it deletes its key.
    apply_as_truncates: A condition as well; a row that meets it deletes all rows that are older.
    column_list: The columns of the result that are written; by default all that the function gives.
    except_column_list: Those that are not written.
    stored_as_scd_type: 1 keeps the newest row of each key, 2 all of them with the time in which each held.
    track_history_column_list: With type 2, the columns of which another value begins a new row; others are changed
        in place. By default all.
    track_history_except_column_list: Those that are changed in place.
    ignore_null_updates: Whether a NULL leaves what is stored.
    keep_deletes: How long a delete is remembered, so that an older change that arrives later is ignored.
    start_column, end_column: With type 2, the columns with the sequences from and to which a row held.
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    apply_as_deletes: str | None = None
    apply_as_truncates: str | None = None
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] | None = None
    stored_as_scd_type: ScdType = 1
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] | None = None
    ignore_null_updates: bool = False
    keep_deletes: Duration = KEEP_DELETES
    start_column: str = "__START_AT"
    end_column: str = "__END_AT"

    def written_columns(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return those of the function's columns that are written, in their order."""
        given = tuple(columns)
        kept = given if self.column_list is None else self.column_list
        return tuple(name for name in given if name in kept and name not in (self.except_column_list or ()))
