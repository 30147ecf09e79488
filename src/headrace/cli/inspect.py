"""`headrace inspect`: a look at what a query keeps, without Spark."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.options import chosen, opened, project_options
from headrace.cli.output import say_finding, say_json


@click.group()
def inspect() -> None:
    """Look at what queries keep in their storage."""


@inspect.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@project_options
def checkpoint(queries: tuple[str, ...], directory: Path, target: str | None, as_json: bool) -> int:
    """Say which files of a checkpoint are bad; 1 when a start would be refused.

    Looks at all that the next start of each QUERY, or of every one, would begin with: offsets, commits, the logs of
    sources, the state, and what Headrace keeps beside them. Nothing is changed and nothing is started. For each bad
    file it says what is lost and what to do. `headrace run` takes the same look before each start.
    """
    project = opened(directory, target)
    names = chosen(project, queries)

    from headrace.api import inspect_checkpoint

    found = [inspect_checkpoint(project, name) for name in names]
    if as_json:
        say_json({"queries": [each.as_dict() for each in found]})
        return 0 if all(each.usable for each in found) else 1
    for each in found:
        if each.planned is None:
            stands = "no batch yet"
        else:
            done = "none" if each.committed is None else each.committed
            stands = f"planned up to batch {each.planned}, committed up to {done}"
        click.echo(f"{each.query}: {stands}; {'usable' if each.usable else 'cannot be started from'}")
        for finding in each.findings:
            say_finding(finding, err=False)
    return 0 if all(each.usable for each in found) else 1
