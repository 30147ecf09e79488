"""The tables of `run` and `status`, a row a query: in columns that fit the terminal, the rest below, or stacked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from headrace.cli.output import amount
from headrace.cli.view import formatting
from headrace.cli.view.formatting import NOTHING
from headrace.contract import BatchRecord
from headrace.contract.observer import Level, QueryState

if TYPE_CHECKING:
    from headrace.contract import BatchWork
    from headrace.generations.inspect_checkpoint import StoredStatus
    from headrace.history import QueryStatus

STYLES: Mapping[Level, str] = {"good": "green", "warning": "yellow", "bad": "bold red", "idle": ""}
NUMBERS = ("batch", "rows in", "rows/s", "duration", "state rows", "cache hits", "restarts")
# Narrower terminals get no columns at all.
LEAST_WIDTH = 60
GAP = "  "


class Fitting:
    """Rows of a query's name, its state, and figures, the most important first.

    Figures that do not fit into the line are printed below it with their names, as is a remark about the query. None
    is cut off. With room for only `most_lines`, the named figures are left out first, then the last queries, which are
    counted.
    """

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.rows: list[tuple[str, ...]] = []
        self.most_lines: int | None = None
        self._besides: dict[int, str] = {}
        self._styles: list[str] = []

    def add(self, *cells: str, besides: str = "", level: Level = "idle") -> None:
        """Add a query: its name, its state, which is as good as `level` says, its figures."""
        self._styles.append(STYLES[level])
        if besides:
            self._besides[len(self.rows)] = besides
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        head, blocks = self._in_columns(width) if width >= LEAST_WIDTH else self._stack(width)
        yield from head
        room = None if self.most_lines is None else max(1, self.most_lines - len(head))
        if room is not None and sum(map(len, blocks)) > room:
            blocks = [block[:1] for block in blocks]
        shown = blocks if room is None or len(blocks) <= room else blocks[: room - 1]
        for block in shown:
            yield from block
        if len(shown) < len(blocks):
            yield Text(f"and {amount(len(blocks) - len(shown), 'query')} more", style="dim")

    def _in_columns(self, width: int) -> tuple[list[Text], list[list[Text]]]:
        """Return the heads of the columns, and the lines of each query."""
        sizes = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        fitting = 2
        while fitting < len(sizes) and sum(sizes[: fitting + 1]) + len(GAP) * fitting <= width:
            fitting += 1
        head = Text(GAP.join(map(_pad, self.columns[:fitting], self.columns, sizes)).rstrip(), style="bold")
        blocks = []
        for number, row in enumerate(self.rows):
            name, state, *figures = map(_pad, row[:fitting], self.columns, sizes)
            line = Text(f"{name}{GAP}").append(state, self._styles[number]).append(GAP.join(["", *figures]))
            blocks.append([line, *self._below(number, fitting, width)])
        return [head], blocks

    def _stack(self, width: int) -> tuple[list[Text], list[list[Text]]]:
        return [], [
            [Text(f"{name}{GAP}").append(state, self._styles[number]), *self._below(number, 2, width)]
            for number, (name, state, *_) in enumerate(self.rows)
        ]

    def _below(self, number: int, shown: int, width: int) -> Iterator[Text]:
        """Yield what else is known of a query, as much in a line as there is room for."""
        for line in wrap(self._besides.get(number, ""), width, initial_indent=GAP, subsequent_indent=2 * GAP):
            yield Text(line, style="cyan")
        figures = zip(self.columns[shown:], self.rows[number][shown:], strict=True)
        line = ""
        for pair in (f"{column} {figure}" for column, figure in figures if figure != NOTHING):
            if line and len(f"{GAP}{line}, {pair},") > width:
                yield Text(f"{GAP}{line},", style="dim")
                line = pair
            else:
                line = f"{line}, {pair}" if line else pair
        if line:
            yield Text(f"{GAP}{line}", style="dim")


def _pad(cell: str, column: str, size: int) -> str:
    return cell.rjust(size) if column in NUMBERS else cell.ljust(size)


@dataclass(kw_only=True)
class Row:
    """A query as the live table shows it.

    now: its state, once it is known. step: of its start, which one it is in. last, busy: the last batch, and the last
    one that had rows. work: how far the running batch is, where that is known.
    """

    query: str
    now: QueryState | None = None
    step: str = ""
    rows: int = 0
    quarantined: int = 0
    last: BatchRecord | None = None
    busy: BatchRecord | None = None
    work: BatchWork | None = None

    def take(self, record: BatchRecord) -> None:
        self.rows, self.last, self.work = self.rows + record.rows, record, None
        self.quarantined += record.quarantined
        self.busy = record if record.rows else self.busy


def live_table(rows: Iterable[Row]) -> Fitting:
    """Return every query of a run with its last batch."""
    table = Fitting("query", "state", "batch", "rows in", "rows/s", "duration", "watermark", "state rows", "lag")
    for row in rows:
        batch, *others = formatting.figures(row.last)
        table.add(
            row.query,
            row.now.state if row.now else "waiting",
            batch,
            formatting.rows_in(row.rows, row.quarantined) if row.last else NOTHING,
            formatting.batch_rate(row.busy),
            *others,
            level=row.now.level if row.now else "idle",
            besides=(row.now.trouble if row.now else "")
            or (f"running batch: {formatting.format_work(row.work)}" if row.work else row.step),
        )
    return table


def stored_table(statuses: Sequence[StoredStatus]) -> Fitting:
    """Return every query of a project by its storage alone."""
    table = Fitting("query", "generation", "driver", "planned", "committed", "committed at", "watermark")
    for status in statuses:
        table.add(
            status.query,
            str(status.generation),
            status.driver or NOTHING,
            formatting.number(status.planned),
            formatting.number(status.committed),
            formatting.instant(status.committed_at),
            formatting.instant(status.watermark),
        )
    return table


def status_table(queries: Iterable[str], statuses: Sequence[QueryStatus]) -> Fitting:
    """Return every query of a project as the history knows it; one that never ran says so."""
    figures = (
        *("batch", "rows in", "rows/s", "duration", "verdict", "trigger", "sink", "seen", "restarts", "watermark"),
        *("state rows", "cache hits", "lag"),
    )
    table = Fitting("query", "state", *figures)
    by_name = {status.query: status for status in statuses}
    for name in dict.fromkeys([*queries, *by_name]):
        status = by_name.get(name)
        if status is None:
            table.add(name, "never started", *[NOTHING] * len(figures))
            continue
        timed = bool(status.batch_ms)  # The time of a batch that was not reported is unknown.
        table.add(
            name,
            status.state,
            formatting.number(status.batch),
            formatting.rows_in(status.rows_total, status.rows_quarantined, sum(status.null_times.values())),
            formatting.rate(status.processed_rate if timed else None),
            formatting.duration(status.batch_ms if timed else None),
            _verdict(status),
            status.trigger,
            status.sink,
            formatting.instant(status.last_seen),
            formatting.number(status.now.restarts),
            formatting.instant(status.watermark),
            formatting.state_rows(status),
            formatting.loads(status),
            formatting.format_lags(status),
            besides=status.now.step,
            level="bad" if status.in_trouble else status.now.level,
        )
    return table


def _verdict(status: QueryStatus) -> str:
    """Format the newest verdict with its batch, its rows and its kind: `equal (batch 23, part 3 of 10)`."""
    if not status.verdict:
        return NOTHING
    batch = status.verdict.get("batch")
    upto, rerun = "" if batch is None else f"batch {batch:,}", status.verdict.get("shown_by") == "rerun"
    of = ", ".join(filter(None, (upto, status.verdict.get("scope"), "by another run" if rerun else "")))
    return f"{status.verdict.get('verdict')}" + (of and f" ({of})")
