"""`headrace inspect`: a look at what a query keeps, without Spark."""

from __future__ import annotations

import click

from headrace.cli.options import ProjectOptions, chosen, reads_project
from headrace.cli.output import say_finding, say_json


@click.group()
def inspect() -> None:
    """Look at what queries keep in their storage."""


@inspect.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@reads_project
def checkpoint(queries: tuple[str, ...], options: ProjectOptions) -> int:
    """Say which files of a checkpoint are bad; 1 when a start would be refused.

    Looks at all that the next start of each QUERY, or of every one, would begin with: offsets, commits, the logs of
    sources, the state, and what Headrace keeps beside them. Nothing is changed and nothing is started. For each bad
    file it says what is lost and what to do. `headrace run` takes the same look before each start. Of a QUERY that is
    named it shows as well which batches the checkpoint and the archive have, sizes, state, and the settings that stay.
    """
    project = options.project(may_lack_variables=True)
    names = chosen(project, queries)

    from headrace import inspect as look
    from headrace.cli.view.looks import facts

    found = [look.checkpoint(project, name) for name in names]
    if options.as_json:
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
        if queries and each.facts is not None:
            for line in facts(each.facts):
                click.echo(f"  {line}")
    return 0 if all(each.usable for each in found) else 1


@inspect.command()
@click.argument("query")
@click.option("--batch", type=click.IntRange(min=0), metavar="N", help="This batch [default: the newest planned one].")
@reads_project
def offsets(query: str, batch: int | None, options: ProjectOptions) -> int:
    """Show what a batch of QUERY takes of each source: where it begins and ends there, files or partitions.

    Batches that Spark has purged are taken from the archive. What a source still holds is shown where that is known
    without Spark.
    """
    project, name = options.with_query(query, may_lack_variables=True)

    from headrace import inspect as look
    from headrace.cli.view.looks import offset_lines

    found = look.offsets(project, name, batch=batch)
    if options.as_json:
        say_json(found.as_dict())
    else:
        click.echo("\n".join(offset_lines(found)))
    return 0


@inspect.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", help="So many batches [default: 20].")
@reads_project
def watermark(query: str, limit: int, options: ProjectOptions) -> int:
    """Show how the watermark of QUERY moved, which source holds it back, and when the next window closes.

    Windows are shown where the text of the query names their length.
    """
    project, name = options.with_query(query, may_lack_variables=True)

    from headrace import inspect as look
    from headrace.cli.view.looks import watermark_lines

    found = look.watermark(project, name, limit=limit)
    if options.as_json:
        say_json(found.as_dict())
    else:
        click.echo("\n".join(watermark_lines(found)))
    return 0
