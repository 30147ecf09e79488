"""What is declared of a query whose rows are changes of a table."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.contract import ChangeOptions as ChangeOptions
from headrace.contract.change_data import ScdType
from headrace.units import Duration

KEEP_DELETES = Duration("7 days", 7 * 86_400.0)


@dataclass(frozen=True, kw_only=True)
class ChangeData:
    """How a query's rows change the table of its sink; the names are those of the option, and of Spark's flows.

    Expressions are texts of Spark SQL over the columns of the source. Without `sequence_by` the source says the order.
    """

    keys: tuple[str, ...]
    sequence_by: str | None = None
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
