"""`headrace rebuild`: recompute a result beside the one in use, look at it, and exchange the two."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import chosen, instant, project_options
from headrace.cli.output import counted, json_text, say_json

if TYPE_CHECKING:
    from headrace.change.rebuild.values import RebuildReport, RebuildResult, RebuildStatus
    from headrace.model import Project

SAMPLES = 5
_DONE = {
    "stopped": "{query}: the rebuild is stopped; headrace rebuild {query} continues it",
    "compared": "{query}: the rebuilt result lies beside; headrace rebuild {query} puts it in place, "
    "headrace rebuild {query} --abandon deletes it",
    "swapped": "{query} is rebuilt: the next start continues generation {generation}\n"
    "  bring the former back: headrace rebuild {query} --roll-back; delete it: headrace rebuild {query} --discard",
    "rolled-back": "{query} is as it was before the rebuild: the next start continues generation {generation}\n"
    "  delete the rebuilt result: headrace rebuild {query} --abandon; put it in place again: headrace rebuild {query}",
    "abandoned": "{query}: nothing of the rebuild is left; the query is generation {generation} as before",
    "discarded": "{query}: the former generation is deleted",
}
_ENDED_WELL = ("swapped", "rolled-back", "abandoned", "discarded")


@click.command()
@click.argument("query")
@click.option("--no-swap", is_flag=True, help="Stop when the new result is there, verified and compared.")
@click.option("--from", "since", metavar="TIME", help="Read only what came from then on, as 2024-05-01T00:00:00Z.")
@click.option("--accept-partial", is_flag=True, help="Begin although the sources no longer hold all of the past.")
@click.option("--wait", is_flag=True, help="Before the swap, wait until the query is stopped.")
@click.option("--status", is_flag=True, help="Say how far the rebuild is; needs no Spark.")
@click.option("--abandon", is_flag=True, help="Give the rebuild up and delete what it has made.")
@click.option("--roll-back", is_flag=True, help="Bring the former generation back.")
@click.option("--discard", is_flag=True, help="Delete the former generation for good.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@project_options
def rebuild(
    query: str,
    no_swap: bool,
    since: str | None,
    accept_partial: bool,
    wait: bool,
    status: bool,
    abandon: bool,
    roll_back: bool,
    discard: bool,
    yes: bool,
    directory: Path,
    target: str | None,
    as_json: bool,
) -> int:
    """Recompute the result of QUERY, beside the one in use.

    Its sources are read from the beginning, by the query as it is written now, and the two are exchanged. The query may
    run meanwhile, as it was; it must be stopped for the exchange. The new result is verified and compared with the
    former one first. After a stop or a crash, give the command again.
    """
    from headrace.load import load

    if sum((status, abandon, roll_back, discard, no_swap)) > 1:
        raise click.UsageError("give one of --no-swap, --status, --abandon, --roll-back and --discard")
    project = load(directory, target=target)
    (name,) = chosen(project, [query])
    if status:
        return _status(project, name, as_json=as_json)
    asks = not yes and not as_json and sys.stdin.isatty()
    if not yes and not asks and not no_swap and not roll_back:
        other = "" if discard or abandon else " or --no-swap"
        raise click.UsageError(f"it asks before it changes anything, which needs a terminal; give --yes{other}")
    deleted = "the former generation" if discard else "what the rebuild has made" if abandon else ""
    if deleted and asks and not click.confirm(f"Delete for good {deleted} of {name}?", err=True):
        return 1
    if abandon or roll_back or discard:
        done = _short_way(project, name, abandon=abandon, roll_back=roll_back)
    else:
        approve = _approval(name, no_swap=no_swap, asks=asks, as_json=as_json)
        given = {"approve": approve, "since": instant(since, "--from"), "accept_partial": accept_partial, "wait": wait}
        done = _rebuilt(project, name, given, as_json=as_json)
    if as_json:
        say_json(done.as_dict())
    else:
        click.echo(_DONE[done.done].format(query=name, generation=done.generation))
    return 0 if done.done in _ENDED_WELL or (no_swap and done.done == "compared") else 1


def _short_way(project: Project, name: str, *, abandon: bool, roll_back: bool) -> RebuildResult:
    from headrace import api

    if abandon:
        return api.abandon_rebuild(project, name)
    return api.roll_back_rebuild(project, name) if roll_back else api.discard_rebuild(project, name)


def _rebuilt(project: Project, name: str, given: dict[str, Any], *, as_json: bool) -> RebuildResult:
    from headrace import api

    if as_json:
        return api.rebuild(project, name, **given)
    from headrace.cli.view.lines import Lines

    with Lines() as view:
        return api.rebuild(project, name, **given, reporter=view, notify=lambda note: click.echo(f"  {note}"))


def _approval(name: str, *, no_swap: bool, asks: bool, as_json: bool) -> Callable[[RebuildReport], bool]:
    def approve(report: RebuildReport) -> bool:
        if not as_json:
            _say(name, report.as_dict())
        return not no_swap and (not asks or click.confirm(f"Put the rebuilt result of {name} in place?", err=True))

    return approve


def _say(name: str, report: dict[str, Any]) -> None:
    """What was found of the rebuilt result."""
    click.echo(f"{name}: rebuilt up to batch {report['batch']}; {report['sentence']}")
    for note in report["notes"]:
        click.echo(f"  {note}")
    found = report["differences"]
    if found is None:
        return
    for each in found["columns"]:
        click.echo(f"  {each}".replace("in the sink", "in the former result").replace("the sink has", "the former has"))
    click.echo(f"  {found['rows_before']:>14,}  rows in the former result, up to its batch {found['batch']}")
    click.echo(f"  {found['rows_after']:>14,}  rows in the rebuilt one")
    for key, words in (
        ("only_before", "rows in the former alone"),
        ("only_after", "rows in the rebuilt alone"),
        ("different", "rows with other values"),
    ):
        click.echo(f"  {found[key]:>14,}  {words}")
    for sample in found["samples"][:SAMPLES]:
        before, after = (json_text(sample[part]) if sample[part] else "-" for part in ("expected", "actual"))
        click.echo(f"    was {before}, is {after}")


def _status(project: Project, name: str, *, as_json: bool) -> int:
    from headrace import api

    found = api.rebuild_status(project, name)
    if as_json:
        say_json({"query": name, "rebuild": None if found is None else found.as_dict()})
    elif found is None:
        click.echo(f"{name}: there is no rebuild")
    else:
        _say_status(found)
    return 0


def _say_status(found: RebuildStatus) -> None:
    about = f"generation {found.generation} beside {found.former}, begun {found.begun}"
    click.echo(f"{found.query}: {found.phase}; {about}")
    lag = "" if found.lag is None else f", {found.lag.count:,} {found.lag.unit} to go"
    click.echo(f"  {counted(found.batches, 'batch')}, {counted(found.rows, 'row')} read{lag}")
    for note in found.notes:
        click.echo(f"  {note}")
    if found.report is not None:
        _say(found.query, dict(found.report))
