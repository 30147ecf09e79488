"""`headrace reset`: let a query start from scratch, take that back, or delete what was set aside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.options import chosen, project_options
from headrace.cli.output import say_json

if TYPE_CHECKING:
    from headrace.change.plans import ResetPlan, ResetResult
    from headrace.model import Project
    from headrace.queries.changes import Choice

_DONE = {
    "reset": "is reset: the next start is generation {generation} and reads its sources from the beginning",
    "undo": "is as it was before the reset: the next start continues generation {generation}",
    "discard": "has nothing set aside any more",
}


@click.command()
@click.argument("query")
@click.option("--drop-result", is_flag=True, help="Set the rows of the sink aside as well.")
@click.option("--keep-result", is_flag=True, help="Let the rows stay where new ones replace them.")
@click.option("--undo", is_flag=True, help="Bring back what the last reset has set aside.")
@click.option("--discard", is_flag=True, help="Delete for good what resets have set aside.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@project_options
def reset(
    query: str,
    drop_result: bool,
    keep_result: bool,
    undo: bool,
    discard: bool,
    yes: bool,
    directory: Path,
    target: str | None,
    as_json: bool,
) -> int:
    """Let QUERY read its sources from the beginning.

    The query must not be running. Its checkpoint, state and records, and with --drop-result what its sink holds, are
    counted, shown and set aside; --undo brings them back until the query has planned a batch again. After a crash,
    give the command again.
    """
    from headrace.load import load

    if sum((undo, discard, drop_result, keep_result)) > 1:
        raise click.UsageError("give one of --drop-result, --keep-result, --undo and --discard")
    result: Choice | None = "drop" if drop_result else "keep" if keep_result else None
    project = load(directory, target=target)
    (name,) = chosen(project, [query])
    asks = not yes and not as_json and sys.stdin.isatty()
    if not undo and result is None and not discard:
        if not asks:
            raise click.UsageError("choose --drop-result or --keep-result")
        result = click.prompt("The result", type=click.Choice(["drop", "keep"]), err=True)
    if not undo and not yes and not asks:
        raise click.UsageError("it asks before it changes anything, which needs a terminal; give --yes")
    done = _done(project, name, result, undo=undo, discard=discard, asks=asks, as_json=as_json)
    if done is None:
        return 1
    if as_json:
        say_json(done.as_dict())
    else:
        click.echo(f"{name} {_DONE[done.done].format(generation=done.generation)}")
        if done.done == "reset":
            click.echo(
                f"  take it back: headrace reset {name} --undo; delete the former: headrace reset {name} --discard"
            )
    return 0


def _done(
    project: Project, name: str, result: Choice | None, *, undo: bool, discard: bool, asks: bool, as_json: bool
) -> ResetResult | None:
    """What was done; None where the user would not."""
    from headrace import api

    if undo:
        return api.undo_reset(project, name)
    if discard:
        if asks and not click.confirm(f"Delete for good what was set aside of {name}?", err=True):
            return None
        return api.discard_reset(project, name)
    assert result is not None, "it was given or asked for"
    if not as_json:
        _say(api.plan_reset(project, name, result=result))
        if asks and not click.confirm(f"Reset {name}?", err=True):
            return None
    return api.reset(project, name, result=result)


def _say(plan: ResetPlan) -> None:
    ends = " (ends a reset that was cut off)" if plan.continues else ""
    click.echo(f"{plan.query}: generation {plan.generation} is set aside{ends}")
    for each in plan.stored:
        click.echo(f"  {each.count:>14,}  {each.what}")
    click.echo(f"the result {'is set aside' if plan.result == 'drop' else 'stays'}")
    for each in plan.held:
        click.echo(f"  {each.count:>14,}  {each.what}")
    for note in plan.notes:
        click.echo(f"  {note}")
