"""Plain lines on stderr, for logs and pipes: at most one a second for each query, and every failure."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from headrace.cli.output import say_finding
from headrace.cli.view.formatting import inside, sentence
from headrace.cli.view.view import FINISHING, STOPPING, RunView
from headrace.contract import BatchRecord, BatchWork, Outcome, QueryStart, QueryState
from headrace.errors import Finding

SECONDS_BETWEEN = 1.0
# How often a batch that lasts is told of.
SECONDS_INSIDE = 10.0


class Lines(RunView):
    """What is held back within the second is reported with the next line or at the query's end, with its rows."""

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
            _line(f"{query} is in a batch: {inside(work)}")

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
