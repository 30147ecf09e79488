"""`headrace check`: what is wrong with a project, and what its queries guarantee."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from headrace import api
from headrace.cli.options import ProjectOptions, choose_queries, reads_project, usage_error
from headrace.cli.output import amount, say_finding, say_json, show_waiting

_CODE = re.compile(r"HR\d{0,3}")


@click.command()
@click.option("--no-spark", is_flag=True, help="Only what can be seen without a JVM.")
@click.option(
    "--no-connect", is_flag=True, help="Ask no database or other system whether it has, or would take, the rows."
)
@click.option(
    "--select",
    "selected",
    multiple=True,
    metavar="CODE|QUERY",
    help="Only this query, or only findings whose code begins so, as HR24; may be given several times.",
)
@reads_project
def check(no_spark: bool, no_connect: bool, selected: Sequence[str], options: ProjectOptions) -> int:
    """Say what is wrong and what each query guarantees and keeps.

    With --select the exit code is that of the findings that are shown.
    """
    project = options.project()

    names = [word.strip() for text in selected for word in text.split(",")]
    for wanted in names:
        if wanted.startswith("HR") and wanted not in project.queries and not _CODE.fullmatch(wanted):
            problem = f"--select: '{wanted}' is neither a query nor the code of a finding, or how codes begin"
            raise usage_error(problem, "write for example HR240, HR24 or a query's name")
    codes = tuple(name for name in names if name not in project.queries and _CODE.fullmatch(name))
    queries = (
        choose_queries(project, [name for name in names if name not in codes]) if set(names) - set(codes) else None
    )
    with show_waiting(f"checking {amount(len(project.queries if queries is None else queries), 'query')}"):
        outcome = api.check(
            project, queries, spark=False if no_spark else None, connect=not no_connect, whole=not queries
        )
    result = outcome.only(codes)
    if options.as_json:
        say_json(result.as_dict())
        return result.exit_code
    for finding in result.findings:
        say_finding(finding, err=False)
    for name, guarantee in result.guarantees.items():
        click.echo(f"{name}: {guarantee.sentence}")
        for bound in result.states.get(name, ()):
            click.echo(f"  state: {bound.sentence}")
        if name in result.held:
            click.echo(f"  held: {result.held[name].sentence}")
        if name in result.no_rewind:
            click.echo(f"  rewind: {result.no_rewind[name]}")
    warnings = sum(finding.severity == "warning" for finding in result.findings)
    counts = (
        (len(project.queries if queries is None else queries), "query"),
        (len(result.errors), "error"),
        (warnings, "warning"),
    )
    click.echo(", ".join(amount(*count) for count in counts))
    return result.exit_code
