"""`headrace stop|pause|resume|restart`: orders from another terminal to a running application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from headrace import api
from headrace.cli.options import ProjectOptions, choose_queries, reads_project
from headrace.cli.output import say_error, say_json, show_waiting
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.control.board import OrderAnswer
    from headrace.control.client import RunningApplications


@click.command()
@click.argument("query", required=False)
@click.option("--now", is_flag=True, help="Cancel running batches; the next start makes them again.")
@reads_project
def stop(query: str | None, now: bool, options: ProjectOptions) -> int:
    """Stop the running application, or QUERY in it.

    Running batches finish, as after SIGTERM, and the command waits for that; 1 if nothing runs. The other queries
    continue when one is stopped. If the application is already stopping, the command only waits.
    """
    if query is not None and now:
        problem = "--now breaks off the batches of a whole application, not of one query"
        raise HeadraceError(code="HR090", what=problem, fix="leave QUERY out, or --now")
    project = options.project(may_lack_variables=True)
    if query is not None:
        choose_queries(project, [query])

    def note(sentence: str) -> None:
        click.echo(f"{sentence}; waiting for its end", err=True)

    with show_waiting("waiting for the running batches"):
        answers = api.running(project).stop(query, now=now, notify=note)
    return _print_answers(answers, as_json=options.as_json)


@click.command()
@click.argument("query")
@reads_project
def pause(query: str, options: ProjectOptions) -> int:
    """Pause QUERY after its running batch.

    The application and its session continue, and keep the query until it is resumed. A query that is already paused
    stays paused, and the exit code is 0.
    """
    return _order(lambda there: there.pause(query), query, options)


@click.command()
@click.argument("query")
@reads_project
def resume(query: str, options: ProjectOptions) -> int:
    """Start a paused QUERY from its checkpoint.

    It passes all checks of a start; 1 if they refuse it.
    """
    return _order(lambda there: there.resume(query), query, options)


@click.command()
@click.argument("query")
@reads_project
def restart(query: str, options: ProjectOptions) -> int:
    """Stop QUERY, and start it from its checkpoint.

    Its running batch finishes; a query that has failed is started too. The application keeps the files that it was
    read last: `headrace deploy` brings a change of the project to it.
    """
    return _order(lambda there: there.restart(query), query, options)


def _order(do: Callable[[RunningApplications], OrderAnswer], query: str, options: ProjectOptions) -> int:
    project, _ = options.with_query(query, may_lack_variables=True)
    with show_waiting(f"{query}: waiting for the running application"):
        answer = do(api.running(project))
    return _print_answers([answer], as_json=options.as_json)


def _print_answers(answers: Sequence[OrderAnswer], *, as_json: bool) -> int:
    failed = [answer.finding for answer in answers if answer.finding is not None]
    if as_json:
        say_json({"answers": [answer.as_dict() for answer in answers]})
    else:
        for answer in answers:
            if answer.done:
                click.echo(answer.said)
        say_error(failed, exit_code=1, as_json=False)
    return 1 if failed else 0
