"""Views of a run: live where there is a terminal, plain lines where there is none, JSON lines for machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TextIO

from headrace.errors import Finding
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord

if TYPE_CHECKING:
    from headrace.model import Project, Query
    from headrace.run.result import HeldState, Outcome, RunResult
    from headrace.spark.batch_work import BatchWork


class View(AbstractContextManager["View"], Protocol):
    """A reporter of a run that opens when the run begins, and closes before the summary is written."""

    def starting(self, query: Query) -> None:
        """A query is being started; before the first one, Spark was."""

    def started(self, query: Query, layout: QueryLayout) -> None:
        """A query has started."""

    def working(self, query: str, work: BatchWork) -> None:
        """A batch runs for a while, and is so far."""

    def stopping(self, *, now: bool) -> None:
        """The run was asked to stop."""

    def progressed(self, record: BatchRecord) -> None:
        """A batch has been committed."""

    def held(self, query: str, state: HeldState, why: str) -> None:
        """A query is paused, or waits for its restart."""

    def ended(self, outcome: Outcome) -> None:
        """A query has come to its end."""

    def note(self, finding: Finding) -> None:
        """Something worth knowing that stops nothing."""

    def summary(self, result: RunResult) -> None:
        """The result of the run, on stdout."""


def view_for(project: Project, queries: Sequence[str], *, ends: bool, as_json: bool) -> View:
    """The view of a run of `queries` that fits: `ends` says that every query's trigger comes to an end."""
    if as_json:
        from headrace.cli.view.json_lines import JsonLines

        return JsonLines()
    from rich.console import Console

    console = Console(file=_terminal(), stderr=True, markup=False, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        from headrace.cli.view.lines import Lines

        return Lines()
    if ends:
        from headrace.cli.view.bars import Bars

        return Bars(project, console, queries)
    from headrace.cli.view.live import LiveTable

    return LiveTable(console, queries)


def _terminal() -> TextIO | None:
    """Standard error as it is now: while the JVM starts, what is written there comes line by line, and late."""
    if not sys.stderr.isatty():
        return None
    return open(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace")
