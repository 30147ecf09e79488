"""`headrace plan`, `run` and `apply`: compare queries with what ran, and run them until they end or are stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace import api
from headrace.cli.command_line import CommandLine
from headrace.cli.options import ProjectOptions, choose_queries, parse_length, reads_project, usage_error
from headrace.cli.output import amount, say_below, say_json, show_waiting
from headrace.cli.service import dashboard
from headrace.errors import EXIT_AWAY, EXIT_REFUSED, Finding, HeadraceError

if TYPE_CHECKING:
    from headrace.cli.view.lines import RunView
    from headrace.model import Project, Trigger
    from headrace.planner.verdict import Judgement
    from headrace.runner.stop import StopRequest


CHANGED = 2
SIGNS = {"same": "=", "safe": "~", "forward": ">", "rebuild": "!", "forbidden": "x"}


def trigger_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--once`, `--available-now` and `--trigger` as one argument, `wanted`: what takes the place of the declared."""

    @wraps(command)
    def with_trigger(once: bool, available_now: bool, trigger: str | None, **given: Any) -> int:
        return command(wanted=_trigger_of(once, available_now, trigger), **given)

    once = click.option("--once", is_flag=True, help="Take everything that is there in one batch, then end.")
    now = click.option("--available-now", is_flag=True, help="Take everything that is there in batches, then end.")
    interval = click.option("--trigger", metavar="INTERVAL", help='Make a batch at this interval, as "5 seconds".')
    return once(now(interval(with_trigger)))


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@trigger_options
@click.option("--accept-forward", is_flag=True, help="Resume after changes that only rows from now on follow.")
@click.option("--exit-on-failure", is_flag=True, help="End when a query fails; a supervisor starts all again.")
@click.option("--metrics", type=click.IntRange(0, 65535), metavar="PORT", help="Serve metrics on loopback.")
@click.option("--ui", "with_ui", is_flag=True, help="Serve the dashboard to this machine, as `headrace ui` does.")
@click.option(
    "--ui-port", type=click.IntRange(0, 65535), metavar="PORT", help="Its port, in place of 8470; 0: a free one."
)
@click.option("--verify-every", metavar="INTERVAL", help='Verify the results while they are written, as "1 hour".')
@click.option("--watch", is_flag=True, help="Deploy each save of the project's files to this run, for development.")
@click.option("--verify-parts", type=click.IntRange(1), metavar="N", help="Of their keys one of N parts each time.")
@reads_project
def run(
    queries: tuple[str, ...],
    wanted: Trigger | None,
    accept_forward: bool,
    exit_on_failure: bool,
    metrics: int | None,
    with_ui: bool,
    ui_port: int | None,
    verify_every: str | None,
    verify_parts: int | None,
    watch: bool,
    options: ProjectOptions,
) -> int:
    """Run the queries named, or all; 1 when one fails.

    Ctrl-C or SIGTERM lets the running batch finish; a second one stops at once. The exit code is 75 when what a start
    needs is away, and 78 when none can succeed before the project is changed.
    """
    fix = 'write for example: --verify-every "1 hour"'
    every = None if verify_every is None else parse_length(verify_every, "--verify-every", fix).seconds
    if every == 0:
        raise usage_error("--verify-every is not a time between two looks", fix)
    if every is None and verify_parts is not None:
        raise usage_error("--verify-parts says how much each look verifies", "give --verify-every with it")
    with ExitStack() as stack:
        stack.enter_context(restart_exit_codes())
        project = options.project()
        if metrics is not None:
            from headrace.model.operations import Metrics

            declared = project.target.operations.metrics or Metrics(port=metrics)
            project = with_operations(project, metrics=replace(declared, port=metrics))
        if exit_on_failure:
            project = with_operations(project, exit_on_failure=True)
        names = choose_queries(project, queries)

        line = CommandLine.current()
        request = _stop_request(line, names, queries, options)
        # Before the view, which takes the screen: what is wrong with it is a sentence, and nothing was started.
        url = ""
        if with_ui or ui_port is not None:
            with show_waiting("starting the dashboard"):
                url = stack.enter_context(dashboard(project, ui_port, request.board))
        view = stack.enter_context(_view(project, names, wanted, options))
        if url:
            view.note(Finding(code="HR886", what=f"the dashboard is at {url} until this run ends"))
        from headrace.export.observers import Observers

        former = None if line is None else line.former
        result = api.run(
            project,
            names if queries else None,  # A run of all queries has those too that a deploy adds.
            trigger=wanted,
            reporter=view if line is None or line.answer is None else Observers(view, line.answer.expect(names)),
            stop=request,
            accept_forward=accept_forward or (former is not None and former.accept_forward),
            verify_every=every,
            verify_parts=verify_parts or 1,
            watch=watch,
        )
    view.summary(result)
    if line is not None and request.new_start is not None:
        line.following = request.new_start
        click.echo("the application begins again", err=True)
    return result.exit_code


def _stop_request(
    line: CommandLine | None, names: Sequence[str], given: Sequence[str], options: ProjectOptions
) -> StopRequest:
    """Return the request by which the run stops, or begins again where this process can execute its command again."""
    from headrace.runner.stop import StopRequest

    if line is None:
        return StopRequest()
    target = ("--target", options.target) if options.target else ()
    plan_command = ("plan", *given, "--json", "-C", str(options.directory), *target)
    held = () if line.former is None else line.former.orders(names)
    return StopRequest(start_plan=lambda: line.start_process(*plan_command), held=held)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@trigger_options
@reads_project
def apply(file: Path, wanted: Trigger | None, options: ProjectOptions) -> int:
    """Run the queries of a plan that still holds; 1 if one fails.

    FILE is what `headrace plan --out` has written; what it found to go forward is accepted. The plan holds as
    long as the queries are written as they were, over the same checkpoints, and no other form of one has run meanwhile;
    batches that were added change nothing. The exit codes are those of `run`.
    """
    with restart_exit_codes():
        project = options.project()

        from headrace.planner.saved import read

        names = [name for name in read(file).queries if name in project.queries]
        with _view(project, names, wanted, options) as view:
            result = api.apply(project, file, trigger=wanted, reporter=view)
    view.summary(result)
    return result.exit_code


def _view(project: Project, names: Sequence[str], wanted: Trigger | None, options: ProjectOptions) -> RunView:
    from headrace.cli.view import view_for

    ends = all((wanted or project.queries[name].trigger).ends for name in names)
    return view_for(project, names, ends=ends, as_json=options.as_json)


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("--detailed-exitcode", is_flag=True, help="2 where something has changed, 0 where nothing has.")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Keep the plan for `headrace apply`.")
@click.option("--no-connect", is_flag=True, help="Ask no source and no sink whether it would take up the query.")
@reads_project
def plan(
    queries: tuple[str, ...], detailed_exitcode: bool, no_connect: bool, out: Path | None, options: ProjectOptions
) -> int:
    """Compare queries with what ran; 1 when one would not start.

    Nothing is started: each difference is shown with what would come of it.
    """
    project = options.project()
    names = choose_queries(project, queries)

    from headrace.planner.verdict import list_refusals

    with show_waiting(f"comparing {amount(len(names), 'query')} with what ran"):
        judgements = api.plan(project, names, connect=not no_connect, save=out)
    refused = {
        judgement.query: tuple(list_refusals(project.queries[judgement.query], judgement)) for judgement in judgements
    }
    if options.as_json:
        plain = [{**one.as_dict(), "refused": [why.as_dict() for why in refused[one.query]]} for one in judgements]
        say_json({"queries": plain})
    else:
        for judgement in judgements:
            say(judgement, refused[judgement.query])
    if detailed_exitcode and not any(refused.values()) and any(judgement.differences for judgement in judgements):
        return CHANGED
    return 1 if any(refused.values()) else 0


def say(judgement: Judgement, refused: Sequence[Finding]) -> None:
    """Print a judgement on stdout, with a fix if it refuses a start."""
    since = f" from batch {judgement.from_batch} on" if judgement.differences else ""
    click.echo(f"{SIGNS[judgement.verdict]} {judgement.query}: {judgement.verdict}{since}")
    for difference in judgement.differences:
        place = f" ({difference.where})" if difference.where.file else ""
        click.echo(f"  {SIGNS[difference.verdict]} {difference.part}{place}")
        click.echo(f"      was: {difference.before}")
        click.echo(f"      is:  {difference.now}")
        click.echo(f"      {difference.why}")
    say_below(judgement.notes)
    for fix in dict.fromkeys(finding.fix for finding in refused if finding not in judgement.notes):
        click.echo(f"  {click.style('fix:', bold=True)} {fix}")


@contextmanager
def restart_exit_codes() -> Iterator[None]:
    """Give exit codes of their own to a start that passes by itself later, and to one that no change but the project's
    lets pass; what is used wrongly or broken keeps its own.
    """
    try:
        yield
    except HeadraceError as error:
        if all(finding.passes for finding in error.findings):
            error.exit_code = EXIT_AWAY
        elif error.exit_code == 1 and any(finding.refuses for finding in error.findings):
            error.exit_code = EXIT_REFUSED
        raise


def with_operations(project: Project, **settings: Any) -> Project:
    """Return the project with these settings of its operations in place of those that it declares."""
    operations = replace(project.target.operations, **settings)
    return replace(project, target=replace(project.target, operations=operations))


def _trigger_of(once: bool, available_now: bool, interval: str | None) -> Trigger | None:
    """Return the trigger that the options name, or None; raises HeadraceError for two, or for an unknown one."""
    from headrace.declare.decorators import parse_trigger
    from headrace.model import AvailableNow, Once

    flags = {"--once": once, "--available-now": available_now, "--trigger": interval is not None}
    given = [name for name, is_there in flags.items() if is_there]
    if len(given) > 1:
        raise usage_error(f"{' and '.join(given)} exclude each other", "give one of them")
    if interval is not None:
        try:
            return parse_trigger(interval)
        except ValueError as error:
            raise usage_error(str(error), 'write for example: --trigger "5 seconds"') from error
    return Once() if once else AvailableNow() if available_now else None
