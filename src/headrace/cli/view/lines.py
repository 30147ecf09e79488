"""What every view of a run has, and those without a screen: plain lines for logs and pipes, JSON lines for machines."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.output import amount, drop, say_finding, say_json
from headrace.cli.view.formatting import format_work, sentence
from headrace.contract import BatchRecord, BatchWork, Observer, Outcome, QueryStart, QueryState
from headrace.errors import Finding
from headrace.export.observers import EventLines

if TYPE_CHECKING:
    from headrace.control.board import RunResult

FINISHING = "finishing the running batches; Ctrl-C again stops at once"
STOPPING = "stopping at once; what a batch has begun is made again at the next start"
SECONDS_BETWEEN = 1.0
# How often a long batch is reported.
SECONDS_INSIDE = 10.0


class RunView(Observer):
    """An observer of a run for its terminal; it closes before the summary is written."""

    def __enter__(self) -> RunView:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Release the terminal."""

    def step(self, what: str) -> None:
        """Show what the command does next to the run."""

    @contextmanager
    def release_terminal(self) -> Iterator[None]:
        """Let others use the terminal while the block runs."""
        yield

    def summary(self, result: RunResult) -> None:
        """Print the result of the run on stdout: a line for each query."""
        for outcome in result.outcomes:
            click.echo(outcome_sentence(outcome))


def outcome_sentence(outcome: Outcome) -> str:
    """Return how a query ended, as one sentence."""
    done = f"{outcome.state} after {amount(outcome.batches, 'batch')} with {amount(outcome.rows, 'row')}"
    return f"{outcome.query}: {done}" + (f" ({outcome.finding.code})" if outcome.finding else "")


class Lines(RunView):
    """At most one line a second for each query, and every failure, on stderr.

    What is held back within the second is reported with the next line or at the query's end, with its rows.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at: dict[str, float] = {}
        self._held: dict[str, list[BatchRecord]] = {}
        self._inside_at: dict[str, float] = {}
        self._prepared: set[tuple[str, str | None]] = set()

    def __enter__(self) -> Lines:
        _line("starting Spark")
        return self

    def leave(self) -> None:
        for query in list(self._held):
            self._say(query)

    def step(self, what: str) -> None:
        _line(what)

    def preparing(self, what: str, query: str | None) -> None:
        # A query that is started again and again says so by itself.
        if (what, query) not in self._prepared:
            self._prepared.add((what, query))
            _line(f"{query}: {what}" if query else what)

    def started(self, start: QueryStart) -> None:
        _line(f"{start.query} started, {start.trigger}, {start.mode} mode into {start.sink}")

    def working(self, query: str, work: BatchWork) -> None:
        self._say(query)
        now, last = self._clock(), self._inside_at.get(query)
        if work.seconds >= SECONDS_INSIDE and (last is None or now - last >= SECONDS_INSIDE):
            self._inside_at[query] = now
            _line(f"{query} is in a batch: {format_work(work)}")

    def stopping(self, *, now: bool) -> None:
        _line(STOPPING if now else FINISHING)

    def progressed(self, record: BatchRecord) -> None:
        self._held.setdefault(record.query, []).append(record)
        last = self._said_at.get(record.query)
        if last is None or self._clock() - last >= SECONDS_BETWEEN:
            self._say(record.query)

    def changed(self, state: QueryState) -> None:
        self._say(state.query)
        if state.state == "paused":
            _line(f"{state.query} is paused" + (f" by {state.by}" if state.by else ""))
        elif state.waits is not None:
            _line(f"{state.query} is {state.state} {state.trouble}")

    def ended(self, outcome: Outcome) -> None:
        self._say(outcome.query)
        if outcome.finding:
            say_finding(outcome.finding)
        else:
            _line(f"{outcome.query} {outcome.state}")

    def note(self, finding: Finding) -> None:
        say_finding(finding)

    def _say(self, query: str) -> None:
        held = self._held.pop(query, [])
        if held:
            _line(sentence(held[-1], batches=len(held), rows=sum(record.rows for record in held)))
            self._said_at[query] = self._clock()


def _line(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


class JsonLines(EventLines, RunView):
    """Every line has `event`: preparing, started, state, working, batch, stopping, ended, note or result.

    A reader that goes away stops the run gently.
    """

    def __init__(self) -> None:
        super().__init__(self._say)
        self._reader_gone = False

    def summary(self, result: RunResult) -> None:
        outcomes = [outcome.as_dict() for outcome in result.outcomes]
        self._say("result", {"exit_code": result.exit_code, "outcomes": outcomes})

    def _say(self, event: str, facts: Mapping[str, Any]) -> None:
        if self._reader_gone:
            return
        try:
            say_json({"event": event, **facts})
        except BrokenPipeError:
            self._reader_gone = True
            drop()
            os.kill(os.getpid(), signal.SIGTERM)
