"""A verdict in words and figures, and the rows that differ as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from headrace.cli.view.formatting import duration, number

if TYPE_CHECKING:
    from headrace.verify import Verdict


def sentence(verdict: Verdict) -> str:
    """What was found of which query, up to which batch."""
    upto = "" if verdict.batch is None else f", up to batch {verdict.batch}"
    return f"{verdict.query}{upto}: {verdict.sentence}"


def figures(verdict: Verdict) -> str:
    """Counts, time and speed."""
    counts = {
        "rows read": verdict.rows_read,
        "rows expected": verdict.rows_expected,
        "rows in the sink": verdict.rows_actual,
        "open": verdict.rows_open,
        "late": verdict.rows_late,
    }
    if verdict.rows_set_aside:
        counts["quarantined"] = verdict.rows_set_aside
    counted = ", ".join(f"{number(count)} {name}" for name, count in counts.items())
    return f"{counted}; {duration(verdict.seconds * 1000)}, {number(verdict.rate)} rows/s"


def difference_table(verdict: Verdict) -> Table:
    """The first rows that differ, by key."""
    total = verdict.missing + verdict.unexpected + verdict.different
    table = Table(title=f"the first {len(verdict.differences)} of {number(total)} differing rows", box=box.SIMPLE_HEAD)
    for column in ("row", "key", "the batch query says", "the sink holds"):
        table.add_column(column, overflow="fold")
    for difference in verdict.differences:
        cells = (difference.key, difference.expected, difference.actual)
        table.add_row(difference.kind, *(_cell(each) for each in cells))
    return table


def _cell(row: Mapping[str, Any] | None) -> Text:
    return Text("-" if not row else ", ".join(f"{name}={value}" for name, value in row.items()))
