"""`headrace verify`: whether a query's result equals the batch query over the prefix that it has taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

import click

from headrace.cli.options import ProjectOptions, chosen, reads_project
from headrace.cli.output import say_json, say_table

if TYPE_CHECKING:
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
    from headrace.cli.view.verdict import difference_table, figures, sentence

    click.echo(sentence(verdict))
    click.echo(f"  {figures(verdict)}")
    for finding in verdict.findings:
        click.echo(f"  {finding}")
    if verdict.differences:
        say_table(difference_table(verdict))
