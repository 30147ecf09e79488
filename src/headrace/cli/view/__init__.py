"""Views of a run: live where there is a terminal, plain lines where there is none, JSON lines for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.cli.output import console_of, open_terminal

if TYPE_CHECKING:
    from headrace.cli.view.lines import RunView
    from headrace.model import Project


def view_for(project: Project, queries: Sequence[str], *, ends: bool, as_json: bool) -> RunView:
    """Return the view of a run of `queries` that fits: `ends` says that every query's trigger comes to an end."""
    from headrace.cli.view.lines import JsonLines, Lines

    if as_json:
        return JsonLines()
    console = console_of(file=open_terminal(), stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        return Lines()
    from headrace.cli.view.live import Bars, LiveTable

    return Bars(project, console, queries) if ends else LiveTable(console, queries)
