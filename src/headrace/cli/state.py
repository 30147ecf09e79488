"""`headrace state`: what a query keeps, and in how many partitions."""

from __future__ import annotations

import click

from headrace.cli.options import ProjectOptions, reads_project
from headrace.cli.output import counted, say_json


@click.group()
def state() -> None:
    """Look at the state of a query, or work on it."""


@state.command()
@click.argument("query")
@click.option("--key", "keys", multiple=True, metavar="COLUMN=VALUE", help="Rows with this key alone; may be repeated.")
@click.option("--batch", type=click.IntRange(min=0), metavar="N", help="As this batch left it [default: the newest].")
@click.option("--limit", type=click.IntRange(min=0), default=5, metavar="N", help="So many samples [default: 5].")
@reads_project
def show(query: str, keys: tuple[str, ...], batch: int | None, limit: int, options: ProjectOptions) -> int:
    """Show what QUERY keeps: its operators, their columns, how many rows, and some of them.

    Spark reads the checkpoint; nothing is changed, and the query may be running. An empty VALUE means NULL.
    """
    project, name = options.with_query(query)
    pairs = [each.partition("=") for each in keys]
    if wrong := next((column for column, equals, _ in pairs if not equals), None):
        raise click.UsageError(f"write --key COLUMN=VALUE, not --key {wrong}")

    from headrace import inspect
    from headrace.cli.view.looks import state_lines

    found = inspect.state(project, name, key={column: value for column, _, value in pairs}, batch=batch, limit=limit)
    if options.as_json:
        say_json(found.as_dict())
    else:
        click.echo("\n".join(state_lines(found)))
    return 0


@state.command()
@click.argument("query")
@click.argument("partitions", type=click.IntRange(min=1))
@reads_project
def repartition(query: str, partitions: int, options: ProjectOptions) -> int:
    """Give the state of QUERY another number of partitions.

    The query must not be running. Its rows stay as they are, and it resumes where it was. After a crash, give the
    command again.
    """
    project, name = options.with_query(query)

    from headrace.api import repartition as repartition_query

    done = repartition_query(project, name, partitions)
    if options.as_json:
        say_json(done.as_dict())
    elif done.batch is None:
        click.echo(f"{name}: the state has {counted(done.after, 'partition')} already")
    else:
        click.echo(f"{name}: the state is in {counted(done.after, 'partition')} instead of {done.before}")
    return 0
