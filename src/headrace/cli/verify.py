"""`headrace verify`: whether a query's result equals the batch query over the prefix that it has taken."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.options import chosen, opened, project_options
from headrace.cli.output import json_text, say_json, say_table

if TYPE_CHECKING:
    from headrace.model import Project
    from headrace.verify import Verdict


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@project_options
def verify(queries: tuple[str, ...], directory: Path, target: str | None, as_json: bool) -> int:
    """Prove that results equal the batch query; 1 when one does not."""
    project = opened(directory, target)
    verdicts = []
    for name in chosen(project, queries):
        verdicts.append(_judged(project, name))
        if not as_json:
            _say(verdicts[-1])
    if as_json:
        say_json({"verdicts": [verdict.as_dict() for verdict in verdicts]})
    return max((verdict.exit_code for verdict in verdicts), default=0)


def _judged(project: Project, name: str) -> Verdict:
    from rich.console import Console

    from headrace.api import verify as judge
    from headrace.history import History
    from headrace.model.layout import history_file

    console = Console(stderr=True, markup=False, highlight=False)
    waiting = console.status(f"{name}: running the batch query") if console.is_terminal else nullcontext()
    with waiting:
        verdict = judge(project, name)
    if history_file(project.storage).exists():
        with History.open(history_file(project.storage)) as history:
            history.record_verdict(name, json_text(verdict.as_dict()))
    return verdict


def _say(verdict: Verdict) -> None:
    from headrace.cli.view.verdict import difference_table, figures, sentence

    click.echo(sentence(verdict))
    click.echo(f"  {figures(verdict)}")
    for finding in verdict.findings:
        click.echo(f"  {finding}")
    if verdict.differences:
        say_table(difference_table(verdict))
