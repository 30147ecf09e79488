"""`headrace state`: work on the state of a query that is not running."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.options import chosen, opened, project_options
from headrace.cli.output import counted, say_json


@click.group()
def state() -> None:
    """Work on the state of a query."""


@state.command()
@click.argument("query")
@click.argument("partitions", type=click.IntRange(min=1))
@project_options
def repartition(query: str, partitions: int, directory: Path, target: str | None, as_json: bool) -> int:
    """Give the state of QUERY another number of partitions.

    The query must not be running. Its rows stay as they are, and it resumes where it was. After a crash, give the
    command again.
    """
    project = opened(directory, target)
    (name,) = chosen(project, [query])

    from headrace.api import repartition as repartition_query

    done = repartition_query(project, name, partitions)
    if as_json:
        say_json(done.as_dict())
    elif done.batch is None:
        click.echo(f"{name}: the state has {counted(done.after, 'partition')} already")
    else:
        click.echo(f"{name}: the state is in {counted(done.after, 'partition')} instead of {done.before}")
    return 0
