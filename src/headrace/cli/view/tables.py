"""The tables of `run` and `status`: one row a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from headrace.cli.view.figures import NOTHING, instant, left, number, took
from headrace.progress import BatchRecord

if TYPE_CHECKING:
    from headrace.history import QueryStatus

STYLES = {"running": "green", "finished": "green", "failed": "bold red", "killed": "bold red", "stopping": "yellow"}
NUMBERS = ("batch", "rows in", "rows/s", "took", "state rows")


@dataclass(kw_only=True)
class Row:
    """A query as the live table shows it."""

    query: str
    state: str = "starting"
    rows: int = 0
    last: BatchRecord | None = None

    def take(self, record: BatchRecord) -> None:
        """Add a batch."""
        self.state, self.rows, self.last = "running", self.rows + record.rows, record


def live_table(rows: Iterable[Row]) -> Table:
    """Every query of a run with its last batch."""
    table = _table("query", "state", "batch", "rows in", "rows/s", "took", "watermark", "state rows", "backlog")
    for row in rows:
        last = row.last
        table.add_row(
            Text(row.query),
            _state(row.state),
            number(last.batch if last else None),
            number(row.rows),
            number(last.processed_rate if last else None),
            took(last.duration_ms if last else None),
            instant(last.watermark if last else None),
            number(last.state_rows if last else None),
            left(last.backlog if last else None),
        )
    return table


def status_table(queries: Iterable[str], statuses: Sequence[QueryStatus]) -> Table:
    """Every query of a project as the history knows it; one that never ran says so."""
    table = _table(
        "query", "state", "batch", "rows in", "rows/s", "took", "watermark", "state rows", "backlog", "restarts", "seen"
    )
    known = {status.query: status for status in statuses}
    for name in dict.fromkeys([*queries, *known]):
        status = known.get(name)
        if status is None:
            table.add_row(Text(name), Text("never started"), *[NOTHING] * 9)
            continue
        table.add_row(
            Text(name),
            _state(status.state),
            number(status.batch),
            number(status.rows_total),
            number(status.processed_rate),
            took(status.batch_ms),
            instant(status.watermark),
            number(status.state_rows),
            left(status.backlog),
            number(status.restarts),
            instant(status.last_seen),
        )
    return table


def _state(state: str) -> Text:
    return Text(state, style=STYLES.get(state, ""))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column in (*NUMBERS, "restarts")
        table.add_column(column, justify="right" if right else "left", no_wrap=column in ("query", "state"))
    return table
