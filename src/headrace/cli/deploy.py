"""`headrace deploy`: a changed project brought to the running application, query by query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace import api
from headrace.cli.options import ProjectOptions, reads_project
from headrace.cli.output import say_error, say_json, show_waiting

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
@reads_project
def deploy(dry_run: bool, accept_forward: bool, options: ProjectOptions) -> int:
    """Bring the project as it is written to the running application.

    Queries that have not changed run on. Changed ones stop after their batch and start with the new code, new ones
    start, removed ones stop. If one is refused, nothing stops. If new code does not start, the query's former code runs
    again. The exit code is 1 in both cases.
    """
    project = options.project(may_lack_variables=True)
    with show_waiting("comparing the project with what runs"):
        results = api.running(project).deploy(dry_run=dry_run, accept_forward=accept_forward)
    if options.as_json:
        say_json({"applications": [result.as_dict() for result in results]})
    else:
        for result in results:
            say(result)
    return 0 if all(result.done for result in results) else 1


def say(result: DeployResult) -> None:
    """Print what a deploy does or did to each query on stdout, and why it was refused on stderr."""
    for step in result.steps:
        click.echo(f"{SIGNS[step.action]} {step.query}: {_outcome(step, result)}")
        for change in step.changes:
            click.echo(f"    {change}")
    say_error(result.errors, exit_code=1, as_json=False)
    if result.errors and not result.carried_out:
        click.echo("nothing was stopped or started", err=True)


def _outcome(step: DeployStep, result: DeployResult) -> str:
    if step.outcome:
        return step.outcome
    if step.findings:
        return "the former code runs again" if result.carried_out else f"refused ({step.verdict})"
    return PLANS[step.action]
