"""`headrace verify`: whether a query's result equals the batch query over the prefix that it has taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import ProjectOptions, chosen, reads_project
from headrace.cli.output import say_json, say_table
from headrace.cli.view.formatting import duration, number

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.model import Project
    from headrace.verify import Verdict


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@reads_project
def verify(queries: tuple[str, ...], options: ProjectOptions) -> int:
    """Prove that results equal the batch query; 1 when one does not.

    Each query gets its own verdict, whatever the others do. With --json each verdict is a line, as soon as it is found.
    """
    project = options.project()
    names = chosen(project, queries)
    worst = 0
    for verdict in _judged(project, names):
        worst = max(worst, verdict.exit_code)
        if options.as_json:
            say_json(verdict.as_dict())
        else:
            _say(verdict)
    return worst


def _judged(project: Project, names: Sequence[str]) -> Iterator[Verdict]:
    """Each verdict as soon as it is found."""
    from rich.console import Console

    from headrace.api import verify_each

    console = Console(stderr=True, markup=False, highlight=False)
    with closing(verify_each(project, names)) as verdicts:
        for name in names:
            waiting = console.status(f"{name}: running the batch query") if console.is_terminal else nullcontext()
            with waiting:
                verdict = next(verdicts)
            yield verdict


def _say(verdict: Verdict) -> None:
    click.echo(sentence(verdict))
    click.echo(f"  {figures(verdict)}")
    for finding in verdict.findings:
        click.echo(f"  {finding}")
    if verdict.differences:
        say_table(difference_table(verdict))


def sentence(verdict: Verdict) -> str:
    """What was found of which query, up to which batch."""
    upto = "" if verdict.batch is None else f", up to batch {verdict.batch}"
    return f"{verdict.query}{upto}: {verdict.sentence}"


def figures(verdict: Verdict) -> str:
    """Counts, time and speed."""
    counts = {
        "rows read": verdict.rows_read,
        "rows expected": verdict.rows_expected,
        "rows in the sink": verdict.rows_actual,
        "open": verdict.rows_open,
        "late": verdict.rows_late,
    }
    if verdict.rows_set_aside:
        counts["quarantined"] = verdict.rows_set_aside
    counted = ", ".join(f"{number(count)} {name}" for name, count in counts.items())
    return f"{counted}; {duration(verdict.seconds * 1000)}, {number(verdict.rate)} rows/s"


def difference_table(verdict: Verdict) -> Table:
    """The first rows that differ, by key."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def cell(row: Mapping[str, Any] | None) -> Text:
        return Text("-" if not row else ", ".join(f"{name}={value}" for name, value in row.items()))

    total = verdict.missing + verdict.unexpected + verdict.different
    table = Table(title=f"the first {len(verdict.differences)} of {number(total)} differing rows", box=box.SIMPLE_HEAD)
    for column in ("row", "key", "the batch query says", "the sink holds"):
        table.add_column(column, overflow="fold")
    for difference in verdict.differences:
        cells = (difference.key, difference.expected, difference.actual)
        table.add_row(difference.kind, *map(cell, cells))
    return table
