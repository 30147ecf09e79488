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

    from headrace.changes.shadow import RebuildStatus
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
        statuses = look()
        _show(project, statuses, options)
        return 1 if any(entry.in_trouble for entry in statuses) else 0
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


def _table(project: Project, statuses: Sequence[QueryStatus]) -> Fitting:
    from headrace.cli.view.tables import status_table

    return status_table(project.queries, statuses)


def _show_stored(project: Project, options: ProjectOptions) -> int:
    from headrace.cli.view.tables import stored_table

    statuses = api.stored_status(project)
    faults = [entry.fault for entry in statuses if entry.fault is not None]

    def show() -> None:
        say_table(stored_table(statuses))
        for fault in faults:
            click.echo(str(fault))

    options.say({"queries": [entry.as_dict() for entry in statuses]}, show)
    return 1 if faults else 0


def _show(project: Project, statuses: Sequence[QueryStatus], options: ProjectOptions) -> None:
    if options.as_json:
        seen = {entry.query for entry in statuses}
        never = [name for name in project.queries if name not in seen]
        facts = {"queries": [entry.as_dict() for entry in statuses], "never_started": never}
        return say_json({**facts, "rebuilds": [rebuild.as_dict() for rebuild in _rebuilds(project)]})
    from headrace.cli.view.formatting import change_counts

    say_table(_table(project, statuses))
    for entry in statuses:
        if entry.counters:
            values = (
                f"{name} {f'{value:,}' if isinstance(value, int) else value}" for name, value in entry.counters.items()
            )
            click.echo(f"{entry.query}: counted {', '.join(values)}")
        if entry.changes is not None:
            counts = change_counts(entry.changes, entry.change_lag_seconds)
            click.echo(f"{entry.query}: batch {entry.batch}: {counts}")
        if entry.error:
            whose = "" if entry.error_pid == entry.pid else f" (process {entry.error_pid}, which has ended)"
            click.echo(f"{entry.query}{whose}: {entry.now.finding() or entry.error}")
        for finding in entry.wrong_times:
            click.echo(str(finding))
        since = f"{entry.now.since:%Y-%m-%d %H:%M:%S} UTC"
        if entry.state == "paused":
            click.echo(f"{entry.query}: paused since {since} by {entry.now.by}")
        if entry.state == "removed":
            click.echo(f"{entry.query}: removed from the project by a deploy, {since}; its result and checkpoint stay")
    for rebuild in _rebuilds(project):
        click.echo(f"{rebuild.query}: {rebuild.sentence}")
    return None


def _rebuilds(project: Project) -> Iterator[RebuildStatus]:
    """Yield the rebuilds that are not done; one whose record is damaged is reported by that query's next start."""
    from headrace.changes.shadow import rebuild_status

    for name in project.queries:
        with suppress(HeadraceError):
            rebuild = rebuild_status(project, name)
            if rebuild is not None and rebuild.phase != "swapped":
                yield rebuild
