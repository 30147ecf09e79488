"""What every view of a run has: it opens when the run begins, and has the last words."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import click

from headrace.cli.output import counted
from headrace.contract import Observer, Outcome

if TYPE_CHECKING:
    from headrace.observe.board import RunResult

FINISHING = "finishing the running batches; Ctrl-C again stops at once"
STOPPING = "stopping at once; what a batch has begun is made again at the next start"
_View = TypeVar("_View", bound="RunView")


class RunView(Observer):
    """An observer of a run for whoever began it; it closes before the summary is written."""

    def __enter__(self: _View) -> _View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Let the terminal go."""

    def summary(self, result: RunResult) -> None:
        """The result of the run, on stdout: a line for each query."""
        for outcome in result.outcomes:
            click.echo(ending(outcome))


def ending(outcome: Outcome) -> str:
    """How a query ended, as one sentence."""
    done = f"{outcome.state} after {counted(outcome.batches, 'batch')} with {counted(outcome.rows, 'row')}"
    return f"{outcome.query}: {done}" + (f" ({outcome.finding.code})" if outcome.finding else "")
