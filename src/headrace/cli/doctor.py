"""`headrace doctor`: what this machine, and what a project needs of others, in one table."""

from __future__ import annotations

import click

from headrace.cli.options import ProjectOptions, reads_project
from headrace.cli.output import say_json, say_table, show_waiting, table_of
from headrace.errors import ProjectError

_MARKS = {"ok": "ok", "note": "-", "warning": "!", "error": "x"}


@click.command()
@click.option("--no-connect", is_flag=True, help="Start no Spark, and ask no source and no sink.")
@reads_project
def doctor(no_connect: bool, options: ProjectOptions) -> int:
    """Examine this machine, and a project's sources and sinks.

    The exit code is 1 when something is in the way of a run.

    Java, memory, disk, ports, clock, file system, jars with their sums, and extras are examined anywhere. In a project
    its declarations are checked too, and brokers, databases and stores are asked if they would give and take the rows:
    by the checks of `headrace check`.
    """
    from headrace.doctor import Examined, examine

    place, project, faults = options.directory, None, []
    if place.is_file() or (place / "headrace.yml").is_file():
        try:
            project = options.project()
        except ProjectError as error:
            faults = [Examined.of("project", finding) for finding in error.findings]
    with show_waiting("examining"):
        lines = [*examine(project, connect=not no_connect), *faults]
    if options.as_json:
        say_json({"checks": [line.as_dict() for line in lines]})
    else:
        rows = [(_MARKS[line.state], line.name, f"{line.code} {line.seen}".strip(), line.fix) for line in lines]
        say_table(table_of(("", "part", "seen", "fix"), rows))
    return int(any(line.state == "error" for line in lines))
