"""Views of a run: live where there is a terminal, plain lines where there is none, JSON lines for machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from headrace.cli.view.lines import RunView
    from headrace.model import Project


def view_for(project: Project, queries: Sequence[str], *, ends: bool, as_json: bool) -> RunView:
    """Return the view of a run of `queries` that fits: `ends` says that every query's trigger comes to an end."""
    from headrace.cli.view.lines import JsonLines, Lines

    if as_json:
        return JsonLines()
    from rich.console import Console

    console = Console(file=_terminal(), stderr=True, markup=False, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        return Lines()
    from headrace.cli.view.live import Bars, LiveTable

    return Bars(project, console, queries) if ends else LiveTable(console, queries)


def _terminal() -> TextIO | None:
    """Open the terminal of standard error itself: while the JVM starts, standard error passes lines on late."""
    if not sys.stderr.isatty():
        return None
    return open(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace")
