"""Several reporters of one run, each of which gets everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue

from headrace.errors import Finding
from headrace.model import Query
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord
from headrace.run.result import HeldState, Outcome, Reporter
from headrace.spark.batch_work import BatchWork


class Reporters:
    """Tells all of them, in their order; `later` takes what other threads say, and is told with the next event."""

    def __init__(self, reporters: Sequence[Reporter], later: SimpleQueue[Finding]) -> None:
        self._all = tuple(reporters)
        self._later = later

    def starting(self, query: Query) -> None:
        self._each(lambda one: one.starting(query))

    def started(self, query: Query, layout: QueryLayout) -> None:
        self._each(lambda one: one.started(query, layout))

    def working(self, query: str, work: BatchWork) -> None:
        self._each(lambda one: one.working(query, work))

    def progressed(self, record: BatchRecord) -> None:
        self._each(lambda one: one.progressed(record))

    def stopping(self, *, now: bool) -> None:
        self._each(lambda one: one.stopping(now=now))

    def held(self, query: str, state: HeldState, why: str) -> None:
        # A reporter of the user's that was written for 0.1.0 does not know of this.
        self._each(lambda one: one.held(query, state, why) if hasattr(one, "held") else None)

    def ended(self, outcome: Outcome) -> None:
        self._each(lambda one: one.ended(outcome))

    def note(self, finding: Finding) -> None:
        self._each(lambda one: one.note(finding))

    def _each(self, tell: Callable[[Reporter], None]) -> None:
        while not self._later.empty():
            finding = self._later.get()
            for one in self._all:
                one.note(finding)
        for one in self._all:
            tell(one)
