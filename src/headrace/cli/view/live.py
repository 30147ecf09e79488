"""A table on the terminal that follows the queries for as long as they run."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headrace.cli.view.ends import summarise
from headrace.cli.view.tables import Fitting, Row, live_table
from headrace.errors import Finding
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord

if TYPE_CHECKING:
    from headrace.model import Query
    from headrace.run.result import Outcome, RunResult


class LiveTable:
    """One row for each query; notes and failures scroll by above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, Row] = {}
        self._live = Live(console=console, get_renderable=self.table, refresh_per_second=4)

    def table(self) -> Fitting:
        """The table as it is now."""
        return live_table(list(self._rows.values()))

    def __enter__(self) -> LiveTable:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def started(self, query: Query, layout: QueryLayout) -> None:
        self._rows[query.name] = Row(query=query.name, state="running")

    def progressed(self, record: BatchRecord) -> None:
        self._rows.setdefault(record.query, Row(query=record.query)).take(record)

    def ended(self, outcome: Outcome) -> None:
        self._rows.setdefault(outcome.query, Row(query=outcome.query)).state = outcome.state
        if outcome.finding:
            self.note(outcome.finding)

    def note(self, finding: Finding) -> None:
        self._console.print(Text(str(finding)))

    def summary(self, result: RunResult) -> None:
        summarise(result)
