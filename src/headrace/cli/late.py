"""`headrace late`: the rows that a query dropped as late, counted exactly, listed, exported, brought back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import ProjectOptions, reads_project
from headrace.cli.output import counted, pairs, say_finding, say_json, say_table, table_of, waiting
from headrace.cli.view.formatting import instant, number

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.verify import Lateness, Replayed


@click.command()
@click.argument("query")
@click.option("--since", type=click.IntRange(min=0), default=0, metavar="BATCH", help="Only this batch and later ones.")
@click.option("--limit", type=click.IntRange(min=0), default=20, metavar="N", help="List so many rows [default: 20].")
@click.option("--count", is_flag=True, help="Count the rows, and list none.")
@click.option(
    "--export",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the rows into DIR as their sources gave them, each once.",
)
@click.option("--to", "former", type=click.Path(path_type=Path, file_okay=False), hidden=True)
@click.option("--replay", is_flag=True, help="Bring the rows back into the result of QUERY, which must not be running.")
@reads_project
def late(
    query: str,
    since: int,
    limit: int,
    count: bool,
    export: Path | None,
    former: Path | None,
    replay: bool,
    options: ProjectOptions,
) -> int:
    """Show which rows QUERY dropped as late, and how late they were.

    They are counted exactly, from each batch's rows and the watermark that was in force. Nothing is written, unless
    --export or --replay asks for it; both may be repeated, and resume where they were cut off. With --json each row is
    a line, and the counts are the last one.
    """
    export = export or former  # --to is the word of earlier versions.
    if replay and (since or export is not None):
        raise click.UsageError("--replay brings every late row back, and takes neither --since nor --export")
    project, name = options.with_query(query, may_lack_variables=True)

    from headrace.api import late as late_of

    with waiting(f"{name}: looking for late rows"):
        found = late_of(project, name, since_batch=since, limit=0 if count else limit, export=export, replay=replay)
    if options.as_json:
        for row in found.rows:
            say_json({"event": "late row", "query": name, **row.as_dict()})
        say_json({"event": "result", **found.as_dict()})
    else:
        _say(found)
    return found.exit_code


def _say(found: Lateness) -> None:
    if found.replay is not None:
        click.echo(f"{found.query}: {change(found.replay)}")
    click.echo(f"{found.query}: {found.sentence}")
    for finding in found.findings:
        say_finding(finding, err=False)
    if found.batches:
        say_table(batch_table(found))
    if found.rows:
        say_table(row_table(found))
    if found.exported:
        click.echo(files(found))


def change(replay: Replayed) -> str:
    """What bringing late rows back has done."""
    if not replay.late:
        return "no late row is missing in the result"
    written = f"{counted(replay.written, 'row')} of the result written"
    deleted = f", {number(replay.deleted)} deleted" if replay.deleted else ""
    return f"{counted(replay.late, 'late row')} brought back: {written}{deleted}"


def files(found: Lateness) -> str:
    """Where the exported rows lie."""
    places = sorted({str(file.parent) for file in found.exported})
    return f"the rows are in {counted(len(found.exported), 'file')} in {', '.join(places)}"


def batch_table(found: Lateness) -> Table:
    """The counts of each operator and batch."""
    rows = [(number(each.batch), each.operator, instant(each.watermark), number(each.rows)) for each in found.batches]
    return table_of(("batch", "dropped by", "watermark", "rows"), rows, right=("batch", "rows"))


def row_table(found: Lateness) -> Table:
    """The first rows, each with its event time and how far behind the watermark it was."""
    return table_of(
        ("batch", "event time", "behind the watermark", "row"),
        [(number(each.batch), instant(each.time), str(each.behind), pairs(each.row, _value)) for each in found.rows],
        title=f"the first {len(found.rows)} of {number(found.count)} late rows",
        right=("batch",),
    )


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({' to '.join(map(_value, value.values()))})"
    return str(value)
