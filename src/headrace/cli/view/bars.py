"""Progress bars, for a run that comes to an end: as long as what the sources hold at the start."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from headrace.cli.view.ends import summarise
from headrace.cli.view.figures import left, number, took
from headrace.errors import Finding
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord
from headrace.run.backlog import backlog

if TYPE_CHECKING:
    from headrace.run.result import Outcome, RunResult


class Bars:
    """One bar for each query; it moves on its own where the backlog of the sources cannot be told."""

    def __init__(self, project: Project, console: Console) -> None:
        self._project, self._console = project, console
        self._tasks: dict[str, TaskID] = {}
        self._rows: dict[str, int] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def started(self, query: Query, layout: QueryLayout) -> None:
        waiting = backlog(self._project, query, layout)
        figures = f"{left(waiting)} to take" if waiting else "starting"
        self._tasks[query.name] = self._progress.add_task(
            query.name, total=waiting.count if waiting else None, figures=figures
        )

    def progressed(self, record: BatchRecord) -> None:
        task = self._task(record.query)
        self._rows[record.query] = self._rows.get(record.query, 0) + record.rows
        total = self._progress.tasks[self._progress.task_ids.index(task)].total
        figures = [
            f"batch {record.batch}",
            f"{number(self._rows[record.query])} rows",
            f"{number(record.processed_rate)} rows/s",
            took(record.duration_ms),
        ]
        if total is not None and record.backlog is not None:
            self._progress.update(task, completed=max(0.0, total - record.backlog.count))
            figures.append(f"{left(record.backlog)} left")
        self._progress.update(task, figures=", ".join(figures))

    def ended(self, outcome: Outcome) -> None:
        task = self._task(outcome.query)
        if outcome.state == "finished":
            self._progress.update(task, total=1, completed=1)
        self._progress.stop_task(task)
        if outcome.finding:
            self.note(outcome.finding)

    def note(self, finding: Finding) -> None:
        self._console.print(Text(str(finding)))

    def summary(self, result: RunResult) -> None:
        summarise(result)

    def _task(self, query: str) -> TaskID:
        if query not in self._tasks:
            self._tasks[query] = self._progress.add_task(query, total=None, figures="not started")
        return self._tasks[query]
