"""`headrace adopt`: let a query continue a job of plain PySpark, with its checkpoint and its result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.options import chosen, project_options
from headrace.cli.output import say_json

if TYPE_CHECKING:
    from headrace.change.plans import Adoption, AdoptionPlan, PlannedIs
    from headrace.model import Project


@click.command()
@click.argument("query")
@click.option(
    "--checkpoint",
    required=True,
    metavar="DIR",
    help="The checkpointLocation of the former job; it is copied and stays as it is.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME=POSITION",
    help="Which source of the checkpoint NAME is, by its number there, from 0 on, or by its name.",
)
@click.option(
    "--planned",
    type=click.Choice(["written", "not-written"]),
    help="Whether the table has the rows of a batch that was planned and not committed.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--verify", "verifies", is_flag=True, help="Compare the result with the batch answer afterwards.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@project_options
def adopt(
    query: str,
    checkpoint: str,
    sources: Sequence[str],
    planned: PlannedIs | None,
    dry_run: bool,
    verifies: bool,
    yes: bool,
    directory: Path,
    target: str | None,
    as_json: bool,
) -> int:
    """Let QUERY continue a job of plain PySpark.

    QUERY is declared and has never run; the job is stopped for good. A copy of its checkpoint becomes that of QUERY,
    and the table that it wrote by foreachBatch becomes the result of QUERY. What is there is shown first. After a
    crash, give the command again; headrace reset takes it back.
    """
    from headrace import api
    from headrace.load import load

    project = load(directory, target=target)
    (name,) = chosen(project, [query])
    asks = not yes and not as_json and sys.stdin.isatty()
    if not dry_run and not yes and not asks:
        raise click.UsageError("it asks before it changes anything, which needs a terminal; give --yes or --dry-run")
    order = dict(map(_pair, sources))
    if dry_run or asks:
        plan = api.plan_adoption(project, name, checkpoint, sources=order, planned=planned)
        if as_json:
            say_json(plan.as_dict())
        else:
            _say(plan)
        if dry_run or not click.confirm(f"Adopt {name}?", err=True):
            return 0 if dry_run else 1
    done = api.adopt(project, name, checkpoint, sources=order, planned=planned)
    return _report(project, done, shown=asks, verifies=verifies, as_json=as_json)


def _report(project: Project, done: Adoption, *, shown: bool, verifies: bool, as_json: bool) -> int:
    from headrace import api

    verdict = api.verify(project, done.query) if verifies else None
    if as_json:
        say_json({**done.as_dict(), "verdict": None if verdict is None else verdict.as_dict()})
    else:
        if not shown:
            _say(done.plan)
        click.echo(f"{done.query} is adopted: the next start makes batch {done.next_batch}")
        if verdict is None:
            click.echo(f"  compare the result with the batch answer: headrace verify {done.query}")
        else:
            click.echo(f"  the result was compared with the batch answer: {verdict.state}")
            for finding in verdict.findings:
                click.echo(f"  {finding}")
        click.echo(f"  continue it: headrace run {done.query}; take it back: headrace reset {done.query}")
    return 1 if verdict is not None and verdict.state == "mismatch" else 0


def _pair(text: str) -> tuple[str, str]:
    name, given, position = text.partition("=")
    if not (name and given and position):
        raise click.BadParameter(f"'{text}' is not NAME=POSITION, as events=0", param_hint="--source")
    return name, position


def _say(plan: AdoptionPlan) -> None:
    ends = " (ends an adoption that was cut off)" if plan.continues else ""
    click.echo(f"{plan.query} continues {plan.checkpoint}{ends}")
    done = "no batch is committed" if plan.committed is None else f"batch {plan.committed} is the last committed one"
    purged = f", those before {plan.first} are purged" if plan.first else ""
    planned = "" if plan.planned is None else f"; batch {plan.planned} is planned and comes again"
    click.echo(f"  batches: {done}{purged}{planned}; {plan.size_bytes:,} bytes are copied")
    for source in plan.sources:
        waits = f"; {source.waits} wait for the first start" if source.waits else ""
        click.echo(f"  source {source.position} is {source.name} ({source.kind}): {source.reached} read{waits}")
    for operator in plan.operators:
        click.echo(
            f"  state operator {operator.number}: {operator.name} in {operator.partitions} partitions, kept by "
            f"{plan.provider}"
        )
    for key, value in sorted(plan.settings.items()):
        click.echo(f"  keeps {key} {value}")
    for each in plan.result:
        click.echo(f"  {each.count:,} {each.what}")
    for note in plan.notes:
        click.echo(str(note))
