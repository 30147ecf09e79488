"""`headrace rewind`: bring a query back to an earlier batch, take that back, or delete what was set aside."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.options import chosen, instant, project_options
from headrace.cli.output import counted, say_json

if TYPE_CHECKING:
    from headrace.change.plans import RewindPlan, RewindResult
    from headrace.model import Project

_DONE = {
    "rewind": "is at the end of batch {batch}: the next start continues after it",
    "undo": "is as it was before the rewind: the next start continues after batch {batch}",
    "discard": "has nothing set aside by a rewind any more",
}


@click.command()
@click.argument("query")
@click.option("--to-batch", type=click.IntRange(min=0), metavar="N", help="The batch at whose end it is to be.")
@click.option("--to-time", metavar="TIME", help="The last batch that was planned by then, as 2024-05-01T00:00:00Z.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--undo", is_flag=True, help="Bring back what the last rewind has taken off.")
@click.option("--discard", is_flag=True, help="Delete for good what the last rewind has set aside.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@project_options
def rewind(
    query: str,
    to_batch: int | None,
    to_time: str | None,
    dry_run: bool,
    undo: bool,
    discard: bool,
    yes: bool,
    directory: Path,
    target: str | None,
    as_json: bool,
) -> int:
    """Bring QUERY and its result back to an earlier batch.

    The query must not be running. Checkpoint, state, records and what the sink holds go back together. What will be
    lost is counted and shown first; --undo brings it back until the query has planned a batch again. After a crash,
    give the command again.
    """
    from headrace.load import load

    if sum((to_batch is not None, to_time is not None, undo, discard)) != 1:
        raise click.UsageError("give one of --to-batch, --to-time, --undo and --discard")
    if dry_run and (undo or discard):
        raise click.UsageError("--dry-run goes with --to-batch or --to-time")
    at = instant(to_time, "--to-time")
    project = load(directory, target=target)
    (name,) = chosen(project, [query])
    if dry_run:
        _say_plan(_plan(project, name, to_batch, at), as_json=as_json)
        return 0
    asks = not yes and not as_json and sys.stdin.isatty()
    if not undo and not yes and not asks:
        raise click.UsageError("it asks before it changes anything, which needs a terminal; give --yes")
    done = _done(project, name, to_batch, at, undo=undo, discard=discard, asks=asks, as_json=as_json)
    if done is None:
        return 1
    if as_json:
        say_json(done.as_dict())
        return 0
    click.echo(f"{name} {_DONE[done.done].format(batch='none' if done.batch is None else done.batch)}")
    if done.done == "rewind":
        click.echo(f"  take it back: headrace rewind {name} --undo; free its space: headrace rewind {name} --discard")
    return 0


def _done(
    project: Project,
    name: str,
    to_batch: int | None,
    at: datetime | None,
    *,
    undo: bool,
    discard: bool,
    asks: bool,
    as_json: bool,
) -> RewindResult | None:
    """What was done; None where the user would not."""
    from headrace import api

    if undo:
        return api.undo_rewind(project, name)
    if discard:
        if asks and not click.confirm(f"Delete for good what the last rewind of {name} has set aside?", err=True):
            return None
        return api.discard_rewind(project, name)
    if not as_json:
        plan = _plan(project, name, to_batch, at)
        _say_plan(plan, as_json=False)
        if asks and not click.confirm(f"Rewind {name}?", err=True):
            return None
        # What was shown is what is done, whatever another time would name meanwhile.
        to_batch, at = plan.batch, None
    return api.rewind(project, name, to_batch=to_batch, to_time=at)


def _plan(project: Project, name: str, to_batch: int | None, at: datetime | None) -> RewindPlan:
    from headrace import api

    return api.plan_rewind(project, name, to_batch=to_batch, to_time=at)


def _say_plan(plan: RewindPlan, *, as_json: bool) -> None:
    if as_json:
        say_json(plan.as_dict())
        return
    ends = " (ends a rewind that was cut off)" if plan.continues else ""
    click.echo(
        f"{plan.query}: from the end of batch {_described(plan.newest, plan.newest_at)} back to that of batch "
        f"{_described(plan.batch, plan.planned_at)}{ends}"
    )
    click.echo(f"{counted(plan.newest - plan.batch, 'batch')} of generation {plan.generation} taken back")
    for each in plan.held:
        click.echo(f"  {each.count:>14,}  {each.what}")
    for text in plan.lost:
        click.echo(f"  lost: {text}")
    for note in plan.notes:
        click.echo(f"  {note}")


def _described(batch: int, at: str | None) -> str:
    return str(batch) if at is None else f"{batch} (planned {at})"
