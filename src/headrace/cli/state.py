"""`headrace state`: look at the state of a query, and work on one that is not running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.options import chosen, opened, project_options
from headrace.cli.output import counted, json_text, say_json

if TYPE_CHECKING:
    from headrace.run.state_look import StateShown


@click.group()
def state() -> None:
    """Look at the state of a query, or work on it."""


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


@state.command()
@click.argument("query")
@click.option("--key", "keys", multiple=True, metavar="COLUMN=VALUE", help="Only rows whose key has this value.")
@click.option("--limit", type=click.IntRange(min=0), default=10, metavar="N", help="So many of each [default: 10].")
@click.option(
    "--batch", type=click.IntRange(min=0), metavar="N", help="After this batch [default: the last committed]."
)
@project_options
def show(
    query: str,
    keys: tuple[str, ...],
    limit: int,
    batch: int | None,
    directory: Path,
    target: str | None,
    as_json: bool,
) -> int:
    """Show what the state of QUERY holds: operators, stores, columns, rows, bytes, and some keys.

    Spark reads it, and nothing is changed; the query may be running. A column inside of a window of the key is named
    with a dot, as window.start.
    """
    if any("=" not in each for each in keys):
        raise click.UsageError("--key takes COLUMN=VALUE")
    project = opened(directory, target)
    (name,) = chosen(project, [query])

    from headrace.api import show_state

    key = {column: value for column, _, value in (each.partition("=") for each in keys)}
    found = show_state(project, name, key=key, limit=limit, batch=batch)
    if as_json:
        say_json(found.as_dict())
    else:
        _say(found)
    return 0


def _say(found: StateShown) -> None:
    from headrace.cli.view.formatting import size_of

    click.echo(f"{found.query}: state after batch {found.batch}")
    for store in found.stores:
        size = size_of(found.sizes_bytes.get(store.operator, 0))
        where = f"{counted(store.partitions, 'partition')}, files of the operator {size}"
        click.echo(
            f"operator {store.operator} {store.operator_name}, {store.name}: {counted(store.rows, 'row')}, {where}"
        )
        click.echo(f"  {', '.join(store.columns)}")
        for row in store.shown:
            click.echo(f"  {json_text(row)}")
