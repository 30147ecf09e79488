"""The tables of `run` and `status`: one row a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace.cli.view.figures import NOTHING, instant, left, loads, number, state_rows, took
from headrace.progress import BatchRecord

if TYPE_CHECKING:
    from headrace.history import QueryStatus

STYLES = {"running": "green", "finished": "green", "failed": "bold red", "killed": "bold red", "stopping": "yellow"}
NUMBERS = ("batch", "rows in", "rows/s", "took", "state rows", "stores kept", "restarts")


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


def live_table(rows: Iterable[Row]) -> Fitting:
    """Every query of a run with its last batch."""
    table = Fitting("query", "state", "batch", "rows in", "rows/s", "took", "watermark", "state rows", "backlog")
    for row in rows:
        last = row.last
        table.add(
            row.query,
            row.state,
            number(last.batch if last else None),
            number(row.rows),
            number(last.processed_rate if last else None),
            took(last.duration_ms if last else None),
            instant(last.watermark if last else None),
            state_rows(last),
            left(last.backlog if last else None),
        )
    return table


def status_table(queries: Iterable[str], statuses: Sequence[QueryStatus]) -> Fitting:
    """Every query of a project as the history knows it; one that never ran says so."""
    figures = ("batch", "rows in", "rows/s", "took", "watermark", "state rows", "stores kept", "backlog", "restarts")
    table = Fitting("query", "state", *figures, "seen")
    known = {status.query: status for status in statuses}
    for name in dict.fromkeys([*queries, *known]):
        status = known.get(name)
        if status is None:
            table.add(name, "never started", *[NOTHING] * (len(figures) + 1))
            continue
        table.add(
            name,
            status.state,
            number(status.batch),
            number(status.rows_total),
            number(status.processed_rate),
            took(status.batch_ms),
            instant(status.watermark),
            state_rows(status),
            loads(status),
            left(status.backlog),
            number(status.restarts),
            instant(status.last_seen),
        )
    return table


class Fitting:
    """A table of queries that lists each one's figures in a single cell where the console is too narrow for columns."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a query: its name, its state, its figures."""
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = self._wide()
        needed = Measurement.get(console, options.update(max_width=10_000), wide).maximum
        yield wide if needed <= options.max_width else self._narrow()

    def _wide(self) -> Table:
        table = _table()
        for column in self.columns:
            table.add_column(column, justify="right" if column in NUMBERS else "left", no_wrap=True)
        for name, state, *figures in self.rows:
            table.add_row(Text(name), _state(state), *map(Text, figures))
        return table

    def _narrow(self) -> Table:
        table = _table()
        for column in (*self.columns[:2], "figures"):
            table.add_column(column, overflow="fold")
        for name, state, *figures in self.rows:
            pairs = zip(self.columns[2:], figures, strict=True)
            known = ", ".join(f"{column} {figure}" for column, figure in pairs if figure != NOTHING)
            table.add_row(Text(name), _state(state), Text(known))
        return table


def _state(state: str) -> Text:
    return Text(state, style=STYLES.get(state, ""))


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)
