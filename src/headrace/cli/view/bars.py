"""Progress bars, for a run that comes to an end: as long as what the sources hold at the start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from headrace.cli.output import counted
from headrace.cli.view.ends import summarise
from headrace.cli.view.formatting import duration, inside, left, rate
from headrace.cli.view.headline import Headline
from headrace.errors import Finding
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord
from headrace.run.lag import lag

if TYPE_CHECKING:
    from headrace.run.result import HeldState, Outcome, RunResult
    from headrace.spark.batch_work import BatchWork

# Narrower terminals get the figures below the bar.
WIDE = 110


class Bars:
    """One bar for each query; it moves on its own where the lag of the sources cannot be determined."""

    def __init__(
        self,
        project: Project,
        console: Console,
        queries: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._project, self._console = project, console
        self._tasks: dict[str, TaskID] = {}
        self._rows: dict[str, int] = {}
        self._milliseconds: dict[str, int] = {}
        self._done: dict[str, str] = {}
        self._progress = _Progress(Headline(clock), console)
        for query in queries:
            self._task(query)

    def shown(self) -> Group:
        """What the terminal shows now."""
        return Group(*self._progress.get_renderables())

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.headline.end()
        self._progress.stop()

    def starting(self, query: Query) -> None:
        self._progress.headline.starting(query.name)
        self._progress.update(self._task(query.name), figures="starting")

    def started(self, query: Query, layout: QueryLayout) -> None:
        self._progress.headline.started()
        waiting = lag(self._project, query, layout)
        self._done[query.name] = f"{left(waiting)} to take" if waiting else "running"
        task = self._task(query.name)
        self._progress.start_task(task)
        self._progress.update(task, total=waiting.count if waiting else None, figures=self._done[query.name])

    def working(self, query: str, work: BatchWork) -> None:
        done = self._done.get(query, "")
        self._progress.update(self._task(query), figures=f"{done}; running batch: {inside(work)}")

    def progressed(self, record: BatchRecord) -> None:
        task = self._task(record.query)
        rows = self._rows[record.query] = self._rows.get(record.query, 0) + record.rows
        milliseconds = self._milliseconds.get(record.query, 0) + record.duration_ms
        self._milliseconds[record.query] = milliseconds
        total = self._progress.tasks[self._progress.task_ids.index(task)].total
        figures = [
            f"batch {record.batch}",
            counted(rows, "row"),
            f"{rate(1000 * rows / milliseconds if milliseconds else None)} rows/s",
            duration(milliseconds),
        ]
        if total is not None and record.backlog is not None:
            self._progress.update(task, completed=max(0.0, total - record.backlog.count))
            figures.append(f"{left(record.backlog)} left")
        self._done[record.query] = ", ".join(figures)
        self._progress.update(task, figures=self._done[record.query])

    def stopping(self, *, now: bool) -> None:
        self._progress.headline.stopping(now=now)

    def held(self, query: str, state: HeldState, why: str) -> None:
        self._progress.update(self._task(query), figures=state)

    def ended(self, outcome: Outcome) -> None:
        task = self._task(outcome.query)
        done = self._done.get(outcome.query)
        if outcome.state == "finished":
            self._progress.update(task, total=1, completed=1, figures=done or "finished")
        else:
            self._progress.update(task, figures=outcome.state + (f"; {done}" if done else ""))
        self._progress.stop_task(task)
        if outcome.finding:
            self.note(outcome.finding)

    def note(self, finding: Finding) -> None:
        self._console.print(Text(str(finding)))

    def summary(self, result: RunResult) -> None:
        summarise(result)

    def _task(self, query: str) -> TaskID:
        if query not in self._tasks:
            self._tasks[query] = self._progress.add_task(query, start=False, total=None, figures="waiting")
        return self._tasks[query]


class _Progress(Progress):
    """Bars below a line that says what the run is at; on a narrow terminal the figures stand below each bar."""

    def __init__(self, headline: Headline, console: Console) -> None:
        self.headline = headline
        short = (
            SpinnerColumn("line"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24 if console.width >= WIDE else 12),
        )
        figures = TextColumn("{task.fields[figures]}", markup=False)
        self._wide = console.width >= WIDE
        super().__init__(*short, *((figures,) if self._wide else ()), TimeElapsedColumn(), console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield Text(self.headline.text())
        if self._wide:
            yield self.make_tasks_table(self.tasks)
            return
        for task in self.tasks:
            yield self.make_tasks_table([task])
            yield _below(task)


def _below(task: Task) -> Text:
    return Text(f"  {task.fields['figures']}", style="dim")
