"""`headrace plan`: what the queries as written would change of those that ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.options import ProjectOptions, chosen, reads_project
from headrace.cli.output import say_below, say_json

if TYPE_CHECKING:
    from headrace.errors import Finding
    from headrace.plan.verdict import Judgement

CHANGED = 2
SIGNS = {"same": "=", "safe": "~", "forward": ">", "rebuild": "!", "forbidden": "x"}


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("--detailed-exitcode", is_flag=True, help="2 where something has changed, 0 where nothing has.")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Keep the plan for `headrace apply`.")
@click.option("--no-connect", is_flag=True, help="Ask no source and no sink whether it would take up the query.")
@reads_project
def plan(
    queries: tuple[str, ...], detailed_exitcode: bool, no_connect: bool, out: Path | None, options: ProjectOptions
) -> int:
    """Compare queries with what ran; 1 when one would not start.

    Nothing is started: each difference is shown with what would come of it.
    """
    project = options.project()
    names = chosen(project, queries)

    from headrace.api import plan as planned
    from headrace.plan.verdict import refusals

    judgements = planned(project, names, connect=not no_connect, save=out)
    refused = {each.query: tuple(refusals(project.queries[each.query], each)) for each in judgements}
    if options.as_json:
        say_json({"queries": [judgement.as_dict() for judgement in judgements]})
    else:
        for judgement in judgements:
            say(judgement, refused[judgement.query])
    if detailed_exitcode and not any(refused.values()) and any(each.differences for each in judgements):
        return CHANGED
    return 1 if any(refused.values()) else 0


def say(judgement: Judgement, refused: Sequence[Finding]) -> None:
    """A judgement on stdout, with what to do where it refuses a start."""
    since = f" from batch {judgement.from_batch} on" if judgement.differences else ""
    click.echo(f"{SIGNS[judgement.verdict]} {judgement.query}: {judgement.verdict}{since}")
    for difference in judgement.differences:
        place = f" ({difference.where})" if difference.where.file else ""
        click.echo(f"  {SIGNS[difference.verdict]} {difference.part}{place}")
        click.echo(f"      was: {difference.before}")
        click.echo(f"      is:  {difference.now}")
        click.echo(f"      {difference.why}")
    say_below(judgement.notes)
    for fix in dict.fromkeys(each.fix for each in refused if each not in judgement.notes):
        click.echo(f"  {click.style('fix:', bold=True)} {fix}")
