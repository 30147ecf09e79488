"""The commands that begin a change of a query, and `headrace change`, for one that was begun."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from headrace import api
from headrace.cli.options import (
    PathOrUrl,
    ProjectOptions,
    as_object,
    json_option,
    parse_instant,
    reads_project,
    with_project,
)
from headrace.cli.output import amount, json_text, say_below, show_waiting

if TYPE_CHECKING:
    from headrace.changes.adopt import Adoption, AdoptionPlan, PlannedIs
    from headrace.changes.pending import AnyChange
    from headrace.changes.rebuild import Rebuild
    from headrace.changes.reset import ResetPlan
    from headrace.changes.rewind import RewindPlan
    from headrace.changes.shadow import RebuildStatus
    from headrace.cli.view.lines import RunView
    from headrace.contract import Held
    from headrace.generations.changes import Choice
    from headrace.model import Project

SAMPLES = 5
_BACK = "\n  take it back: headrace change undo {query}; delete the former: headrace change discard {query}"
_DONE = {
    "reset": {
        "reset": "{query} is reset: the next start is generation {generation} and reads its sources from the beginning"
        + _BACK,
        "undo": "{query} is as it was before the reset: the next start continues generation {generation}",
        "discard": "{query} has nothing set aside any more",
    },
    "rewind": {
        "rewind": "{query} is at the end of batch {batch}: the next start continues after it" + _BACK,
        "undo": "{query} is as it was before the rewind: the next start continues after batch {batch}",
        "discard": "{query} has nothing set aside by a rewind any more",
    },
    "repair": {
        "repair": "{query} is repaired\n  take it back: headrace verify {query} --undo",
        "undo": "{query} holds again what it held before the repair",
    },
    "rebuild": {
        "stopped": "{query}: the rebuild is stopped; headrace rebuild {query} continues it",
        "compared": "{query}: the rebuilt result is kept; headrace rebuild {query} puts it in place, "
        "headrace change discard {query} deletes it",
        "swapped": "{query} is rebuilt: the next start continues generation {generation}" + _BACK,
        "rolled-back": "{query} is as it was before the rebuild: the next start continues generation {generation}\n"
        "  delete the rebuilt result: headrace change discard {query}; put it in place again: headrace rebuild {query}",
        "abandoned": "{query}: nothing of the rebuild is left; the query is generation {generation} as before",
        "discarded": "{query}: the former generation is deleted",
    },
}
_ENDED_WELL = ("swapped", "rolled-back", "abandoned", "discarded")


@dataclass(frozen=True)
class ChangeArguments(ProjectOptions):
    """What a command that begins a change was given as well: `--yes` and `--dry-run`."""

    yes: bool = False
    dry_run: bool = False

    def asks(self, other: str = "") -> bool:
        """Whether to ask at the terminal. Raises UsageError without a terminal and without --yes."""
        asks = not self.yes and not self.as_json and sys.stdin.isatty()
        if not self.yes and not asks:
            raise click.UsageError(f"it asks before it changes anything, which needs a terminal; give --yes{other}")
        return asks


def ends(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options by which it ends a change."""
    asks = click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
    return asks(with_project(json_option(as_object(ChangeArguments, command))))


def begin_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options by which it begins a change."""
    return click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")(ends(command))


def apply_change(
    change: AnyChange, show: Callable[[Any], None], options: ChangeArguments, say: Callable[[Any], int] | None = None
) -> int:
    """Apply `change`, print what was done, and return the exit code.

    The plan is printed first, or after the change where no question is asked.
    """
    asks = not options.dry_run and options.asks(" or --dry-run")
    if options.dry_run or asks:
        with show_waiting(f"{change.query.name}: looking at what there is"):
            plan = change.plan
        options.say(plan.as_dict(), partial(show, plan))
        if options.dry_run or not click.confirm(f"{change.name.capitalize()} {change.query.name}?", err=True):
            return 0 if options.dry_run else 1
    with show_waiting(f"{change.query.name}: {change.name}"):
        done = change.apply()
    if not options.as_json and not asks:
        show(done.plan)
    return say_done(change, done, options) if say is None else say(done)


def undo_change(change: AnyChange, options: ProjectOptions) -> int:
    """Undo `change`, print what was done, and return the exit code."""
    with show_waiting(f"{change.query.name}: undoing the {change.name}"):
        done = change.undo()
    return say_done(change, done, options)


def say_done(change: AnyChange, done: Any, options: ProjectOptions) -> int:
    def show() -> None:
        batch = getattr(done, "batch", None)
        facts = {"generation": getattr(done, "generation", None), "batch": "none" if batch is None else batch}
        click.echo(_DONE[change.name][done.done].format(query=change.query.name, **facts))

    options.say(done.as_dict(), show)
    return 0


def _say_held(held: Sequence[Held]) -> None:
    say_below(f"{entry.count:>14,}  {entry.what}" for entry in held)


# ----------------------------------------------------------------------------------------------------------- reset


@click.command()
@click.argument("query")
@click.option("--drop-result", is_flag=True, help="Set the rows of the sink aside too.")
@click.option("--keep-result", is_flag=True, help="Keep the rows, which new ones then replace.")
@begin_options
def reset(query: str, drop_result: bool, keep_result: bool, options: ChangeArguments) -> int:
    """Return QUERY to the beginning of its sources.

    The query must not be running. Its checkpoint, state and records, and with --drop-result what its sink holds, are
    counted, shown and set aside; `headrace change undo` brings them back until the query has planned a batch again.
    After a crash, give the command again.
    """
    if drop_result and keep_result:
        raise click.UsageError("give one of --drop-result and --keep-result")
    result: Choice | None = "drop" if drop_result else "keep" if keep_result else None
    project, name = options.with_query(query)
    if result is None:
        if options.yes or options.as_json or not sys.stdin.isatty():
            raise click.UsageError("choose --drop-result or --keep-result")
        result = click.prompt("The result", type=click.Choice(["drop", "keep"]), err=True)
    change = api.reset(project, name, result=result)
    return apply_change(change, _say_reset, options)


def _say_reset(plan: ResetPlan) -> None:
    ends = " (ends a reset that was cut off)" if plan.continues else ""
    click.echo(f"{plan.query}: generation {plan.generation} is set aside{ends}")
    _say_held(plan.stored)
    click.echo(f"the result {'is set aside' if plan.result == 'drop' else 'stays'}")
    _say_held(plan.held)
    say_below(plan.notes)


# ---------------------------------------------------------------------------------------------------------- rewind


@click.command()
@click.argument("query")
@click.option("--to-batch", type=click.IntRange(min=0), metavar="N", help="The batch at whose end it is to be.")
@click.option("--to-time", metavar="TIME", help="The last batch that was planned by then, as 2024-05-01T00:00:00Z.")
@begin_options
def rewind(query: str, to_batch: int | None, to_time: str | None, options: ChangeArguments) -> int:
    """Return QUERY and its result to an earlier batch.

    The query must not be running. Checkpoint, state, records and what the sink holds go back together. What will be
    lost is counted and shown first; `headrace change undo` brings it back until the query has planned a batch again.
    After a crash, give the command again.
    """
    if (to_batch is None) == (to_time is None):
        raise click.UsageError("give one of --to-batch and --to-time")
    time = parse_instant(to_time, "--to-time")
    project, name = options.with_query(query)
    change = api.rewind(project, name, to_batch=to_batch, to_time=time)
    return apply_change(change, _say_rewind, options)


def _say_rewind(plan: RewindPlan) -> None:
    def describe(batch: int, at: str | None) -> str:
        return str(batch) if at is None else f"{batch} (planned {at})"

    ends = " (ends a rewind that was cut off)" if plan.continues else ""
    click.echo(
        f"{plan.query}: from the end of batch {describe(plan.newest, plan.newest_at)} back to that of batch "
        f"{describe(plan.batch, plan.planned_at)}{ends}"
    )
    click.echo(f"{amount(plan.newest - plan.batch, 'batch')} of generation {plan.generation} taken back")
    _say_held(plan.held)
    say_below((*(f"lost: {text}" for text in plan.lost), *plan.notes))


# ----------------------------------------------------------------------------------------------------------- adopt


@click.command()
@click.argument("query")
@click.option(
    "--checkpoint",
    required=True,
    type=PathOrUrl,
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
@click.option("--verify", "verifies", is_flag=True, help="Compare the result with the batch answer afterwards.")
@begin_options
def adopt(
    query: str,
    checkpoint: str,
    sources: Sequence[str],
    planned: PlannedIs | None,
    verifies: bool,
    options: ChangeArguments,
) -> int:
    """Continue a job of plain PySpark as QUERY.

    QUERY is declared and has never run; the job is stopped for good. A copy of its checkpoint becomes that of QUERY,
    and the table that it wrote by foreachBatch becomes the result of QUERY. What is there is shown first. After a
    crash, give the command again; headrace reset takes it back.
    """
    project, name = options.with_query(query)
    order = dict(map(_pair, sources))
    change = api.adopt(project, name, checkpoint, sources=order, planned=planned)
    return apply_change(change, _say_adoption, options, partial(_say_adopted, project, options, verifies=verifies))


def _pair(text: str) -> tuple[str, str]:
    name, given, position = text.partition("=")
    if not (name and given and position):
        raise click.BadParameter(f"'{text}' is not NAME=POSITION, as events=0", param_hint="--source")
    return name, position


def _say_adopted(project: Project, options: ChangeArguments, done: Adoption, *, verifies: bool = False) -> int:
    with show_waiting(f"{done.query}: running the batch query"):
        verdict = api.verify(project, done.query) if verifies else None
    compared: list[object] = [f"compare the result with the batch answer: headrace verify {done.query}"]
    if verdict is not None:
        compared = [f"the result was compared with the batch answer: {verdict.state}", *verdict.findings]

    def show() -> None:
        click.echo(f"{done.query} is adopted: the next start makes batch {done.next_batch}")
        say_below(compared)
        click.echo(f"  continue it: headrace run {done.query}; take it back: headrace reset {done.query}")

    options.say({**done.as_dict(), "verdict": None if verdict is None else verdict.as_dict()}, show)
    return 1 if verdict is not None and verdict.state == "mismatch" else 0


def _say_adoption(plan: AdoptionPlan) -> None:
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
    say_below(f"keeps {key} {value}" for key, value in sorted(plan.settings.items()))
    say_below(f"{entry.count:,} {entry.what}" for entry in plan.result)
    for note in plan.notes:
        click.echo(str(note))


# --------------------------------------------------------------------------------------------------------- rebuild


@click.command()
@click.argument("query")
@click.option("--no-swap", is_flag=True, help="Stop when the new result is there, verified and compared.")
@click.option("--from", "since", metavar="TIME", help="Read only what came from then on, as 2024-05-01T00:00:00Z.")
@click.option("--accept-partial", is_flag=True, help="Begin although the sources no longer hold all of the past.")
@click.option("--wait", is_flag=True, help="Before the swap, wait until the query is stopped.")
@begin_options
def rebuild(
    query: str, no_swap: bool, since: str | None, accept_partial: bool, wait: bool, options: ChangeArguments
) -> int:
    """Recompute the result of QUERY; the former one stays in use.

    Its sources are read from the beginning, by the query as it is written now, and the two are exchanged. The query may
    run meanwhile, as it was; it must be stopped for the exchange. The new result is verified and compared with the
    former one first. After a stop or a crash, give the command again; `headrace change` shows how far it is, brings the
    former result back or deletes it.
    """
    time = parse_instant(since, "--from")
    project, name = options.with_query(query)
    asks = not (no_swap or options.dry_run) and options.asks(" or --no-swap")
    change = api.rebuild(project, name, since=time, accept_partial=accept_partial)
    if not options.dry_run:
        return _apply_rebuild(change, options, no_swap=no_swap, wait=wait, asks=asks)
    with show_waiting(f"{name}: looking at what there is"):
        plan = change.plan

    def show() -> None:
        click.echo(f"{name}: generation {plan.generation} would be built next to {plan.former}")
        say_below(plan.notes)

    options.say(plan.as_dict(), show)
    return 0


def _apply_rebuild(
    change: Rebuild, options: ChangeArguments, *, no_swap: bool = False, wait: bool = False, asks: bool
) -> int:
    name = change.query.name

    view: RunView | None = None

    def approve(report: Any) -> bool:
        if view is None:
            return not no_swap
        # The question and its answer need the terminal.
        with view.release_terminal():
            _say_report(name, report.as_dict())
            return not no_swap and (not asks or click.confirm(f"Put the rebuilt result of {name} in place?", err=True))

    def notify(note: str) -> None:
        if view is not None:
            with view.release_terminal():
                click.echo(f"  {note}")

    def show_step(reached: str) -> None:
        if view is not None and reached == "caught-up":
            view.step(f"{name}: comparing the new result with the former one")

    if options.as_json:
        done = change.apply(approve=approve, wait=wait)
    else:
        from headrace.cli.view import view_for

        with view_for(change.project, [name], ends=True, as_json=False) as view:
            done = change.apply(approve=approve, wait=wait, reporter=view, notify=notify, reached=show_step)
    say_done(change, done, options)
    return 0 if done.done in _ENDED_WELL or (no_swap and done.done == "compared") else 1


def _say_report(name: str, report: dict[str, Any]) -> None:
    """Print how the rebuilt result differs from the former one."""
    click.echo(f"{name}: rebuilt up to batch {report['batch']}; {report['sentence']}")
    say_below(report["notes"])
    differences = report["differences"]
    if differences is None:
        return
    for sentence in differences["columns"]:
        former = sentence.replace("in the sink", "in the former result").replace("the sink has", "the former has")
        click.echo(f"  {former}")
    for key, words in (
        ("rows_before", f"rows in the former result, up to its batch {differences['batch']}"),
        ("rows_after", "rows in the rebuilt one"),
        ("only_before", "rows in the former alone"),
        ("only_after", "rows in the rebuilt alone"),
        ("different", "rows with other values"),
    ):
        click.echo(f"  {differences[key]:>14,}  {words}")
    for sample in differences["samples"][:SAMPLES]:
        before, after = (json_text(sample[part]) if sample[part] else "-" for part in ("expected", "actual"))
        click.echo(f"    was {before}, is {after}")


# ---------------------------------------------------------------------------------------- a change that was begun


@click.group()
def change() -> None:
    """Show, end, undo or discard a change of a query.

    A change is what rebuild, rewind, reset and adopt begin. Of several the last one is meant, and one that a crash has
    cut off before all others.
    """


@change.command(name="status")
@click.argument("query")
@reads_project
def change_status(query: str, options: ProjectOptions) -> int:
    """Show the changes of QUERY that can be ended, undone or discarded.

    None is the usual answer. It needs no Spark.
    """
    project, name = options.with_query(query, may_lack_variables=True)
    from headrace.changes.pending import changes

    statuses = [status for pending in changes(project, name) if (status := pending.status) is not None]

    def show() -> None:
        for status in statuses:
            click.echo(f"{status.query}: {status.sentence}\n  {status.change} begun {status.begun}")
            if status.change == "rebuild":
                _say_rebuild(status)  # type: ignore[arg-type]
        if not statuses:
            click.echo(f"{name}: no change of it is under way or kept")

    options.say({"query": name, "changes": [status.as_dict() for status in statuses]}, show)
    return 0


def _say_rebuild(status: RebuildStatus) -> None:
    lag = "" if status.lag is None else f", {status.lag.count:,} {status.lag.unit} to go"
    read = f"{amount(status.batches, 'batch')}, {amount(status.rows, 'row')} read{lag}"
    click.echo(f"  {status.phase}; generation {status.generation} next to {status.former}; {read}")
    say_below(status.notes)
    if status.report is not None:
        _say_report(status.query, dict(status.report))


@change.command(name="resume")
@click.argument("query")
@ends
def change_resume(query: str, options: ChangeArguments) -> int:
    """End the change of QUERY that was stopped or cut off.

    Or enter the one that the sink has seen and the log lacks, where the storage was restored from a copy that was made
    while the query was changed.
    """
    project, name = options.with_query(query)
    change = _require_change(project, name, "resume")
    from headrace.changes.rebuild import Rebuild

    if isinstance(change, Rebuild) and change.status is not None and change.status.phase == "building":
        return _apply_rebuild(change, options, asks=options.asks())
    with show_waiting(f"{name}: ending the {change.name}"):
        done = change.resume()
    return _say_adopted(project, options, done) if change.name == "adopt" else say_done(change, done, options)


@change.command(name="undo")
@click.argument("query")
@reads_project
def change_undo(query: str, options: ProjectOptions) -> int:
    """Restore QUERY as it was before its last change.

    Possible until the query plans its next batch. After the undo of a rebuild, the rebuilt result is kept.
    """
    change = _require_change(*options.with_query(query), "undo")
    return undo_change(change, options)


@change.command(name="discard")
@click.argument("query")
@ends
def change_discard(query: str, options: ChangeArguments) -> int:
    """Delete for good what the last change of QUERY has set aside.

    For a rebuild that is not in place yet, delete its result.
    """
    project, name = options.with_query(query)
    asks = options.asks()
    change = _require_change(project, name, "discard")
    deleted = f"what the last {change.name} of {name} has set aside"
    if change.name == "rebuild":
        before = change.status is not None and change.status.phase not in ("swapped", "discarding")
        deleted = f"what the rebuild of {name} has made" if before else f"the former generation of {name}"
    if asks and not click.confirm(f"Delete for good {deleted}?", err=True):
        return 1
    with show_waiting(f"{name}: deleting {deleted}"):
        done = change.discard()
    return say_done(change, done, options)


@change.command(name="register")
@reads_project
def change_register(options: ProjectOptions) -> int:
    """Make a lost register from the directories of the queries.

    Each query then has its first name: one that was renamed since is declared with renamed_from again.
    """
    project = options.project(may_lack_variables=True)
    from headrace.generations.register import rebuild_register

    register = rebuild_register(project.storage)

    def show() -> None:
        click.echo(f"the register of {project.storage} is there again: {', '.join(sorted(register.queries))}")

    options.say({"application": register.application, "queries": sorted(register.queries)}, show)
    return 0


def _require_change(project: Project, query: str, verb: str) -> AnyChange:
    """Return the change that is meant. Raises NothingToChange where there is none."""
    from headrace.changes.change import NothingToChange

    pending = api.change(project, query)
    if pending is None:
        problem = f"query '{query}' has no change to {verb}: none was begun, or all is ended, undone or discarded"
        where = project.queries[query].where
        raise NothingToChange(code="HR582", what=problem, where=where, severity="note")
    return pending
