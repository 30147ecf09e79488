"""`headrace status`: what every query is doing, from the history alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import click

from headrace import api
from headrace.cli.options import FiniteRange, ProjectOptions, reads_project
from headrace.cli.output import console_of, say_json, say_table
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from rich.live import Live

    from headrace.change.shadow import RebuildStatus
    from headrace.cli.view.tables import Fitting
    from headrace.history import QueryStatus
    from headrace.model import Project

REDRAWN_SECONDS = 0.25


@click.command()
@click.option("--watch", type=FiniteRange(0.2, 86_400), metavar="SECONDS", help="Look again and again; Ctrl-C ends.")
@click.option("--follow", is_flag=True, help="Follow the running application until it ends.")
@click.option("--storage-only", is_flag=True, help="Ask the storage alone, from any machine that reaches it.")
@reads_project
def status(watch: float | None, follow: bool, storage_only: bool, options: ProjectOptions) -> int:
    """Show how each query stands; 1 when one is in trouble.

    Trouble: it failed or was killed and has not worked since, waits for its source or sink, or a newer driver has
    fenced off the one before. Rows in are what all batches since the query's first one have read, as verify counts
    them. --follow gets every batch from the running application as soon as it is committed, and ends with it.
    --storage-only shows which batches are planned and committed and who runs the query, by the checkpoint and the lock,
    while the history stays on the driver's machine.
    """
    from headrace.history.lag import SourceLags

    project = options.project(may_lack_variables=True)
    if storage_only:
        return _show_stored(project, options)
    look = SourceLags(project).statuses
    if follow:
        with suppress(KeyboardInterrupt):
            _follow(project, look, as_json=options.as_json)
    if watch is None:
        found = look()
        _show(project, found, options)
        return 1 if any(each.in_trouble for each in found) else 0
    with suppress(KeyboardInterrupt), nullcontext() if options.as_json else _live() as live:
        while True:
            if live is None:
                _show(project, look(), options)
            else:
                live.update(_table(project, look()), refresh=True)
            time.sleep(watch)
    return 0


def _follow(project: Project, look: Callable[[], list[QueryStatus]], *, as_json: bool) -> None:
    """Show each event as it comes: as a line of JSON, or as what it made of the table."""
    if as_json:
        for event in api.running(project).follow():
            say_json(event)
        return
    with _live(transient=True) as live:
        shown_at = 0.0
        for event in api.running(project).follow():
            if event["event"] == "note":
                live.console.print(f"{event['finding']['code']}: {event['finding']['what']}")
            elif time.monotonic() - shown_at >= REDRAWN_SECONDS or event["event"] != "batch":
                shown_at = time.monotonic()
                live.update(_table(project, look()), refresh=True)


def _live(*, transient: bool = False) -> Live:
    from rich.live import Live

    return Live(console=console_of(), auto_refresh=False, transient=transient)


def _table(project: Project, found: Sequence[QueryStatus]) -> Fitting:
    from headrace.cli.view.tables import status_table

    return status_table(project.queries, found)


def _show_stored(project: Project, options: ProjectOptions) -> int:
    from headrace.cli.view.tables import stored_table

    found = api.stored_status(project)
    faults = [each.fault for each in found if each.fault is not None]

    def show() -> None:
        say_table(stored_table(found))
        for fault in faults:
            click.echo(str(fault))

    options.say({"queries": [each.as_dict() for each in found]}, show)
    return 1 if faults else 0


def _show(project: Project, found: Sequence[QueryStatus], options: ProjectOptions) -> None:
    if options.as_json:
        seen = {each.query for each in found}
        never = [name for name in project.queries if name not in seen]
        told = {"queries": [each.as_dict() for each in found], "never_started": never}
        return say_json({**told, "rebuilds": [each.as_dict() for each in _rebuilds(project)]})
    say_table(_table(project, found))
    for each in found:
        if each.counters:
            values = (
                f"{name} {f'{value:,}' if isinstance(value, int) else value}" for name, value in each.counters.items()
            )
            click.echo(f"{each.query}: counted {', '.join(values)}")
        if each.error:
            whose = "" if each.error_pid == each.pid else f" (process {each.error_pid}, which has ended)"
            click.echo(f"{each.query}{whose}: {each.now.finding() or each.error}")
        for finding in each.wrong_times:
            click.echo(str(finding))
        if each.state == "paused":
            click.echo(f"{each.query}: paused since {each.now.since:%Y-%m-%d %H:%M:%S} UTC by {each.now.by}")
    for rebuild in _rebuilds(project):
        click.echo(f"{rebuild.query}: {rebuild.sentence}")
    return None


def _rebuilds(project: Project) -> Iterator[RebuildStatus]:
    """The rebuilds that are not done; one whose record is damaged is reported by that query's next start."""
    from headrace.change.shadow import rebuild_status

    for name in project.queries:
        with suppress(HeadraceError):
            found = rebuild_status(project, name)
            if found is not None and found.phase != "swapped":
                yield found
