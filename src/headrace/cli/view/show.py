"""The demo as its watcher sees it: one live panel on a terminal, plain lines without one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.cli.output import say_below, say_json, table_of
from headrace.cli.view.formatting import batch_rate, figures, number, sentence
from headrace.cli.view.tables import STYLES
from headrace.demo.flow import Tally

# How often it is said how far a batch is.
BETWEEN_SECONDS = 5.0


class PlainShow:
    """Everything as lines on stdout."""

    def __init__(self) -> None:
        self._batches = 0
        self._said_at = 0.0
        self._step = ""

    def __enter__(self) -> PlainShow:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the terminal."""

    def say(self, sentence: str) -> None:
        click.echo(f"* {sentence}")

    def show(self, tally: Tally) -> None:
        now = time.monotonic()
        if tally.last is not None and tally.batches > self._batches and now - self._said_at >= 1:
            self._batches, self._said_at = tally.batches, now
            click.echo(f"  {sentence(tally.last)}; {number(tally.landed)} rows landed, {number(tally.rows)} taken")
        elif self._is_new(tally, now):
            click.echo(f"  {tally.step}")

    def _is_new(self, tally: Tally, now: float) -> bool:
        """Whether the step was not said yet; of a running batch not each task is."""
        if tally.step in ("", self._step) or (tally.state == "running" and now - self._said_at < BETWEEN_SECONDS):
            return False
        self._step, self._said_at = tally.step, now
        return True

    def show_command(self, command: Sequence[str]) -> None:
        click.echo(f"\n$ headrace {' '.join(command)}")

    def result(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        click.echo("\nthe first rows of the result:")
        Console(markup=False, highlight=False, width=100).print(table_of(columns, [[*map(str, row)] for row in rows]))

    def end(self, code: int, steps: Sequence[str]) -> None:
        click.echo("the demo did not come to a good end; look into it with:" if code else "next, type:")
        say_below(steps)


class LiveShow(PlainShow):
    """A panel while the driver runs, and lines before and after it."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(markup=False, highlight=False)
        self._live: Live | None = None

    @staticmethod
    def fits() -> bool:
        """Whether stdout is a terminal that can redraw a panel."""
        console = Console()
        return console.is_terminal and not console.is_dumb_terminal

    def __exit__(self, *_: object) -> None:
        self._close()

    def say(self, sentence: str) -> None:
        killed = sentence.startswith("driver killed")
        self._console.print(Text(f"* {sentence}", style="bold red" if killed else ""))

    def show(self, tally: Tally) -> None:
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=8)
            self._live.start()
        self._live.update(panel(tally))

    def show_command(self, command: Sequence[str]) -> None:
        self._close()
        super().show_command(command)

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class JsonShow(PlainShow):
    """JSON lines on stdout; what the commands print in between is theirs."""

    def say(self, sentence: str) -> None:
        say_json({"event": "said", "sentence": sentence})

    def show(self, tally: Tally) -> None:
        if tally.last is not None and tally.batches > self._batches:
            self._batches = tally.batches
            say_json({"event": "batch", "landed": tally.landed, **tally.last.as_dict()})
        elif self._is_new(tally, time.monotonic()):
            say_json({"event": "step", "step": tally.step})

    def show_command(self, command: Sequence[str]) -> None:
        say_json({"event": "command", "arguments": list(command)})

    def result(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        say_json({"event": "result", "rows": [dict(zip(columns, row, strict=True)) for row in rows]})

    def end(self, code: int, steps: Sequence[str]) -> None:
        say_json({"event": "end", "exit_code": code, "next": list(steps)})


def panel(tally: Tally) -> Panel:
    """Return the figures of the driver and what has landed."""
    batch, *others = figures(tally.last)
    grid = Table.grid(padding=(0, 3))
    for _ in range(4):
        grid.add_column()
    shown = [
        *(("rows landed", number(tally.landed)), ("rows in", number(tally.rows))),
        *(("batch", batch), ("rows/s", batch_rate(tally.last))),
        *zip(("batch time", "watermark", "state rows", "lag"), others, strict=True),
    ]
    for pairs in zip(shown[::2], shown[1::2], strict=True):
        grid.add_row(*(cell for name, value in pairs for cell in (Text(name, style="dim"), Text(value, style="bold"))))
    style = STYLES["bad" if tally.state == "killed" else "good" if tally.state == "running" else "idle"]
    head = Text.assemble(
        "driver ", (tally.state, style), f", start {tally.starts}" + (tally.step and f": {tally.step}")
    )
    return Panel(Group(head, grid), title="action_counts", box=box.ROUNDED, width=78)
