"""The live views of a run: a table while it runs on, and progress bars where it comes to an end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.spinner import Spinner
from rich.text import Text

from headrace.cli.output import amount
from headrace.cli.view.formatting import duration, format_lag, format_work, rate
from headrace.cli.view.lines import FINISHING, STOPPING, RunView
from headrace.cli.view.tables import Row, live_table
from headrace.contract import BatchRecord, BatchWork, Outcome, QueryStart, QueryState
from headrace.errors import Finding
from headrace.generations.register import layout_of
from headrace.history.lag import lag
from headrace.model import Project

# The headline and what explains a figure, and two lines for the cursor and a wrapped headline.
OTHER_LINES = 4
EXPLAINED = "rows in: read by the batches of this run; verify reads those of earlier runs too"
# The terminal writes ^C where the cursor is; behind a full line it would wrap, and what is drawn over be off by one.
FOR_CTRL_C = Text()
# Narrower terminals get the figures below the bar.
WIDE = 110


class _OnTerminal(RunView):
    """What a live view shows above its table or bars: a line that says what the run is at, and notes that scroll by.

    The line names how long the run lasts, so that it is seen to be alive.
    """

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._begun = clock()
        self._what = "starting Spark"
        self._stopping = False

    def headline(self) -> str:
        seconds = int(self._clock() - self._begun)
        return f"{self._what} ({f'{seconds} s' if seconds < 60 else duration(1000 * seconds)})"

    def leave(self) -> None:
        self._what = "ended"

    def preparing(self, what: str, query: str | None) -> None:
        self._say(f"starting {query or 'Spark'}: {what}")

    def starting(self, query: str) -> None:
        self._say(f"starting {query}")

    def started(self, start: QueryStart) -> None:
        self._say("running; Ctrl-C stops after the running batches")

    def stopping(self, *, now: bool) -> None:
        self._stopping = True
        self._what = STOPPING if now else FINISHING

    def ended(self, outcome: Outcome) -> None:
        if outcome.finding:
            self.note(outcome.finding)

    def note(self, finding: Finding) -> None:
        self._console.print(Text(str(finding)))

    def step(self, what: str) -> None:
        self._say(what)

    def _say(self, what: str) -> None:
        if not self._stopping:
            self._what = what


class LiveTable(_OnTerminal):
    """One row for each query below a line that says what the run is at; notes and failures scroll by above."""

    def __init__(
        self, console: Console, queries: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(console, clock)
        self._rows = {query: Row(query=query) for query in queries}
        self._spinner = Spinner("line")
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=4)

    def render(self) -> Group:
        self._spinner.update(text=self.headline())
        table = live_table(self._rows.values())
        table.most_lines = self._console.height - OTHER_LINES
        explains = any(row.rows for row in self._rows.values()) and self._console.width >= len(EXPLAINED)
        return Group(self._spinner, table, *([Text(EXPLAINED, style="dim")] if explains else []), FOR_CTRL_C)

    def __enter__(self) -> LiveTable:
        self._live.start(refresh=True)
        return self

    def leave(self) -> None:
        super().leave()
        self._live.stop()

    def preparing(self, what: str, query: str | None) -> None:
        super().preparing(what, query)
        if query is not None:
            self._row(query).step = what

    def working(self, query: str, work: BatchWork) -> None:
        self._row(query).work = work

    def progressed(self, record: BatchRecord) -> None:
        self._row(record.query).take(record)

    def changed(self, state: QueryState) -> None:
        row = self._row(state.query)
        row.now, row.step, row.work = state, "", row.work if state.is_started else None

    def _row(self, query: str) -> Row:
        return self._rows.setdefault(query, Row(query=query))


class Bars(_OnTerminal):
    """One bar for each query; it moves on its own where the lag of the sources cannot be determined."""

    def __init__(
        self,
        project: Project,
        console: Console,
        queries: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console, clock)
        self._project = project
        self._tasks: dict[str, TaskID] = {}
        self._rows: Counter[str] = Counter()
        self._milliseconds: Counter[str] = Counter()
        self._done: dict[str, str] = {}
        self._progress = _Progress(self.headline, console)
        for query in queries:
            self._task(query)

    def render(self) -> Group:
        return Group(*self._progress.get_renderables())

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def leave(self) -> None:
        super().leave()
        self._progress.stop()

    @contextmanager
    def release_terminal(self) -> Iterator[None]:
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def preparing(self, what: str, query: str | None) -> None:
        super().preparing(what, query)
        if query is not None:
            self._progress.update(self._task(query), figures=what)

    def started(self, start: QueryStart) -> None:
        super().started(start)
        query = self._project.queries.get(start.query)  # None: a deploy has added it.
        waiting = lag(self._project, query, layout_of(self._project, query)) if query else None
        self._done[start.query] = f"{format_lag(waiting)} to take" if waiting else "running"
        task = self._task(start.query)
        self._progress.start_task(task)
        self._progress.update(task, total=waiting.count if waiting else None, figures=self._done[start.query])

    def working(self, query: str, work: BatchWork) -> None:
        done = self._done.get(query, "")
        self._progress.update(self._task(query), figures=f"{done}; running batch: {format_work(work)}")

    def progressed(self, record: BatchRecord) -> None:
        task = self._task(record.query)
        self._rows[record.query] += record.rows
        self._milliseconds[record.query] += record.duration_ms
        rows, milliseconds = self._rows[record.query], self._milliseconds[record.query]
        total = self._progress.tasks[self._progress.task_ids.index(task)].total
        figures = [
            f"batch {record.batch}",
            amount(rows, "row"),
            f"{rate(1000 * rows / milliseconds if milliseconds else None)} rows/s",
            duration(milliseconds),
        ]
        if total is not None and record.backlog is not None:
            self._progress.update(task, completed=max(0.0, total - record.backlog.count))
            figures.append(f"{format_lag(record.backlog)} left")
        self._done[record.query] = ", ".join(figures)
        self._progress.update(task, figures=self._done[record.query])

    def changed(self, state: QueryState) -> None:
        if state.state != "running":
            done = self._done.get(state.query)
            self._progress.update(self._task(state.query), figures=state.state + (f"; {done}" if done else ""))

    def ended(self, outcome: Outcome) -> None:
        task = self._task(outcome.query)
        done = self._done.get(outcome.query)
        if outcome.state == "finished":
            self._progress.update(task, total=1, completed=1, figures=done or "finished")
        self._progress.stop_task(task)
        super().ended(outcome)

    def _task(self, query: str) -> TaskID:
        if query not in self._tasks:
            self._tasks[query] = self._progress.add_task(query, start=False, total=None, figures="waiting")
        return self._tasks[query]


class _Progress(Progress):
    """Bars below a line that says what the run is at; on a narrow terminal the figures stand below each bar."""

    def __init__(self, headline: Callable[[], str], console: Console) -> None:
        self._headline = headline
        short = (
            SpinnerColumn("line"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24 if console.width >= WIDE else 12),
        )
        figures = TextColumn("{task.fields[figures]}", markup=False)
        self._wide = console.width >= WIDE
        super().__init__(*short, *((figures,) if self._wide else ()), TimeElapsedColumn(), console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield Text(self._headline())
        if self._wide:
            yield self.make_tasks_table(self.tasks)
            return
        for task in self.tasks:
            yield self.make_tasks_table([task])
            yield Text(f"  {task.fields['figures']}", style="dim")
        yield FOR_CTRL_C
