"""A table on the terminal that follows the queries for as long as they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from headrace.cli.view.ends import summarise
from headrace.cli.view.headline import Headline
from headrace.cli.view.tables import Row, live_table
from headrace.errors import Finding
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord

if TYPE_CHECKING:
    from headrace.model import Query
    from headrace.run.result import HeldState, Outcome, RunResult
    from headrace.spark.batch_work import BatchWork

# The headline and what explains a figure, and two lines for the cursor and a wrapped headline.
LINES_BESIDE = 4
EXPLAINED = "rows in: read by the batches of this run; verify reads those of earlier runs too"


class LiveTable:
    """One row for each query below a line that says what the run is at; notes and failures scroll by above."""

    def __init__(
        self, console: Console, queries: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._rows = {query: Row(query=query) for query in queries}
        self._headline = Headline(clock)
        self._spinner = Spinner("line")
        self._live = Live(console=console, get_renderable=self.shown, refresh_per_second=4)

    def shown(self) -> Group:
        """What the terminal shows now."""
        self._spinner.update(text=self._headline.text())
        table = live_table(list(self._rows.values()))
        table.most_lines = self._console.height - LINES_BESIDE
        return Group(self._spinner, table, *([Text(EXPLAINED, style="dim")] if self._explains() else []))

    def __enter__(self) -> LiveTable:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._headline.end()
        self._live.stop()

    def starting(self, query: Query) -> None:
        self._headline.starting(query.name)
        self._row(query.name).state = "starting"

    def started(self, query: Query, layout: QueryLayout) -> None:
        self._headline.started()
        self._row(query.name).state = "running"

    def working(self, query: str, work: BatchWork) -> None:
        self._row(query).work = work

    def progressed(self, record: BatchRecord) -> None:
        self._row(record.query).take(record)

    def stopping(self, *, now: bool) -> None:
        self._headline.stopping(now=now)
        for row in self._rows.values():
            if row.state == "running":
                row.state = "stopping"

    def held(self, query: str, state: HeldState, why: str) -> None:
        self._row(query).end(state)

    def ended(self, outcome: Outcome) -> None:
        self._row(outcome.query).end(outcome.state)
        if outcome.finding:
            self.note(outcome.finding)

    def note(self, finding: Finding) -> None:
        self._console.print(Text(str(finding)))

    def summary(self, result: RunResult) -> None:
        summarise(result)

    def _row(self, query: str) -> Row:
        return self._rows.setdefault(query, Row(query=query))

    def _explains(self) -> bool:
        return any(row.rows for row in self._rows.values()) and self._console.width >= len(EXPLAINED)
