"""`headrace check`: what is wrong with a project, and what its queries guarantee."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.options import opened, project_options
from headrace.cli.output import counted, say_finding, say_json


@click.command()
@click.option("--no-spark", is_flag=True, help="Only what can be seen without a JVM.")
@click.option("--no-connect", is_flag=True, help="Ask no database or other system whether it would take the result.")
@project_options
def check(no_spark: bool, no_connect: bool, directory: Path, target: str | None, as_json: bool) -> int:
    """Say what is wrong, and what each query guarantees."""
    project = opened(directory, target)

    from headrace.api import check as checked

    result = checked(project, spark=False if no_spark else None, connect=not no_connect)
    if as_json:
        say_json(result.as_dict())
        return result.exit_code
    for finding in result.findings:
        say_finding(finding, err=False)
    for name, guarantee in result.guarantees.items():
        click.echo(f"{name}: {guarantee.sentence}")
    warnings = sum(finding.severity == "warning" for finding in result.findings)
    counts = ((len(project.queries), "query"), (len(result.errors), "error"), (warnings, "warning"))
    click.echo(", ".join(counted(*each) for each in counts))
    return result.exit_code
