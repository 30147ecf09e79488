"""`headrace preview`: what a query makes of a sample of its sources."""

from __future__ import annotations

import click

from headrace.cli.options import ProjectOptions, reads_project
from headrace.cli.output import amount, say_json, say_table, show_waiting, table_of
from headrace.errors import plain


@click.command()
@click.argument("query")
@click.option("--rows", type=click.IntRange(1), default=20, metavar="N", help="Show so many rows [default: 20].")
@click.option("--sample", type=click.IntRange(1), default=1000, metavar="N", help="Read so many [default: 1000].")
@reads_project
def preview(query: str, rows: int, sample: int, options: ProjectOptions) -> int:
    """Show what QUERY makes of the first rows of its sources.

    The sources are the real ones, each read up to --sample rows. The sink is not touched, and no checkpoint is kept.
    The result is that of the sample as a batch, with all groups closed. With --json each row is a line.
    """
    project, name = options.with_query(query)

    from headrace.sampling import preview as preview_query

    with show_waiting(f"{name}: reading up to {sample:,} rows of each source"):
        result = preview_query(name, project=project, rows=rows, sample=sample)
    if options.as_json:
        for row in result:
            say_json(plain(dict(zip(result.columns, row, strict=True))))
    else:
        say_table(table_of(result.columns, [["" if value is None else str(value) for value in row] for row in result]))
        click.echo(f"{amount(len(result), 'row')}, of a sample of the sources")
    return 0
