"""The last words of a run, the same in every view for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.output import counted

if TYPE_CHECKING:
    from headrace.run.result import Outcome, RunResult


def ending(outcome: Outcome) -> str:
    """How a query ended, as one sentence."""
    done = f"{outcome.state} after {counted(outcome.batches, 'batch')} with {counted(outcome.rows, 'row')}"
    return f"{outcome.query}: {done}" + (f" ({outcome.finding.code})" if outcome.finding else "")


def summarise(result: RunResult) -> None:
    """A line for each query, on stdout."""
    for outcome in result.outcomes:
        click.echo(ending(outcome))
