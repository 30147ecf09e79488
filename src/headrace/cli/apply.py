"""`headrace apply`: run the queries of a plan that was kept in a file, as long as it holds."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.options import ProjectOptions, reads_project
from headrace.cli.run import telling_whether_to_start_again, trigger_of, trigger_options


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@trigger_options
@reads_project
def apply(file: Path, once: bool, available_now: bool, trigger: str | None, options: ProjectOptions) -> int:
    """Run the queries of a plan, if it still holds; 1 when one fails.

    FILE is what `headrace plan --out` has written; what it found to go forward is accepted. The plan holds as
    long as the queries are written as they were, over the same checkpoints, and no other form of one has run meanwhile;
    batches that were added change nothing. The exit codes are those of `run`.
    """
    wanted = trigger_of(once=once, available_now=available_now, interval=trigger)
    with telling_whether_to_start_again():
        project = options.project()

        from headrace.api import apply as apply_plan
        from headrace.cli.view import view_for
        from headrace.plan.saved import read

        names = [name for name in read(file).queries if name in project.queries]
        triggers = [wanted or project.queries[name].trigger for name in names]
        with view_for(project, names, ends=all(each.ends for each in triggers), as_json=options.as_json) as view:
            result = apply_plan(project, file, trigger=wanted, reporter=view)
    view.summary(result)
    return result.exit_code
