"""`headrace deploy`: a changed project brought to the running application, query by query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace import api
from headrace.cli.options import ProjectOptions, reads_project
from headrace.cli.output import say_below, say_error, say_json, show_waiting

if TYPE_CHECKING:
    from headrace.control.deploys import DeployResult, DeployStep

SIGNS = {"keep": "=", "restart": "~", "start": "+", "stop": "-"}
PLANS = {
    "keep": "runs on",
    "restart": "stops after its batch, and starts with the new code",
    "start": "starts",
    "stop": "stops after its batch",
}


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--accept-forward", is_flag=True, help="Accept changes that only rows from now on follow.")
@click.option("--restart", is_flag=True, help="Let the application begin again if a change needs that.")
@reads_project
def deploy(dry_run: bool, accept_forward: bool, restart: bool, options: ProjectOptions) -> int:
    """Bring the project as it is written to the running application.

    Queries that have not changed run on. Changed ones stop after their batch and start with the new code, new ones
    start, removed ones stop. If one is refused, nothing stops. If new code does not start, the query's former code runs
    again. The exit code is 1 in both cases.

    Settings of Spark, jars, packages and modules outside of the project need a new start. With --restart, the
    application stops after its batches, and its process executes its command again.
    """
    project = options.project(may_lack_variables=True)
    with show_waiting("comparing the project with what runs"):
        results = api.running(project).deploy(dry_run=dry_run, accept_forward=accept_forward, restart=restart)
    if options.as_json:
        say_json({"applications": [result.as_dict() for result in results]})
    else:
        for result in results:
            say(result)
    return 0 if all(result.done for result in results) else 1


def say(result: DeployResult) -> None:
    """Print what a deploy does or did to each query on stdout, and why it was refused on stderr."""
    if result.reasons:
        came = "was to begin again" if result.findings else "has begun again"
        begins = came if result.carried_out else "stops after its batches and begins again"
        click.echo(f"process {result.pid} {begins}:")
        say_below(result.reasons)
    for step in result.steps:
        click.echo(f"{SIGNS[step.action]} {step.query}: {_outcome(step, result)}")
        for change in step.changes:
            click.echo(f"    {change}")
    say_error(result.errors, exit_code=1, as_json=False)
    if result.errors and not result.carried_out:
        click.echo("nothing was stopped or started", err=True)
    elif result.findings:
        click.echo("the application has ended: correct it, and start it again: headrace run", err=True)


def _outcome(step: DeployStep, result: DeployResult) -> str:
    if step.outcome:
        return step.outcome
    if step.findings:
        if not result.carried_out:
            return f"refused ({step.verdict})"
        return "does not run" if result.reasons else "the former code runs again"
    return PLANS[step.action]
