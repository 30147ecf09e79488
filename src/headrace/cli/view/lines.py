"""Plain lines on stderr, for logs and pipes: at most one a second for each query, and every failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import click

from headrace.cli.output import say_finding
from headrace.cli.view.ends import summarise
from headrace.cli.view.formatting import inside, sentence
from headrace.cli.view.headline import FINISHING, STOPPING
from headrace.errors import Finding
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord

if TYPE_CHECKING:
    from headrace.model import Query
    from headrace.run.result import HeldState, Outcome, RunResult
    from headrace.spark.batch_work import BatchWork

SECONDS_BETWEEN = 1.0
# How often a batch that lasts is told of.
SECONDS_INSIDE = 10.0


class Lines:
    """What is held back within the second is reported with the next line or at the query's end, with its rows."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at: dict[str, float] = {}
        self._held: dict[str, list[BatchRecord]] = {}
        self._inside_at: dict[str, float] = {}

    def __enter__(self) -> Lines:
        _line("starting Spark")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for query in list(self._held):
            self._say(query)

    def starting(self, query: Query) -> None:
        return None

    def started(self, query: Query, layout: QueryLayout) -> None:
        _line(f"{query.name} started, {query.trigger}, {query.mode} mode into {query.sink_kind}")

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

    def held(self, query: str, state: HeldState, why: str) -> None:
        self._say(query)
        _line(f"{query} is paused {why}".rstrip() if state == "paused" else f"{query} waits: {why}")

    def ended(self, outcome: Outcome) -> None:
        self._say(outcome.query)
        if outcome.finding:
            say_finding(outcome.finding)
        else:
            _line(f"{outcome.query} {outcome.state}")

    def note(self, finding: Finding) -> None:
        say_finding(finding)

    def summary(self, result: RunResult) -> None:
        summarise(result)

    def _say(self, query: str) -> None:
        held = self._held.pop(query, [])
        if held:
            _line(sentence(held[-1], batches=len(held), rows=sum(record.rows for record in held)))
            self._said_at[query] = self._clock()


def _line(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
