"""Queries of a run that are not running for a while: paused by somebody, or waiting for their restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from headrace.errors import Finding
from headrace.model import Query
from headrace.operate.board import Board
from headrace.operate.orders import Order
from headrace.run.notes import Notes
from headrace.run.restarts import Attempt
from headrace.run.result import Reporter


@dataclass(frozen=True, kw_only=True)
class Held:
    """One of them, and the run in the history that it belongs to. due: when it starts again; None: it is paused."""

    query: Query
    history_run: int | None
    due: float | None = None


class Holding:
    """Those that are held, by name; what is said of them goes to the board, the history and the reporter."""

    def __init__(self, board: Board, notes: Notes, reporter: Reporter) -> None:
        self._board = board
        self._notes = notes
        self._reporter = reporter
        self._held: dict[str, Held] = {}

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def __bool__(self) -> bool:
        return bool(self._held)

    def find(self, query: str) -> Held | None:
        """The held query of this name."""
        return self._held.get(query)

    def pause(self, query: Query, history_run: int | None, order: Order) -> None:
        """Keep a query until somebody resumes it."""
        self._held[query.name] = Held(query=query, history_run=history_run)
        if history_run is not None:
            self._notes.record(lambda history: history.state(history_run, "paused"))
        self._notes.event("paused", query.name, history_run, {"by": order.by})
        self._board.post(query.name, "paused", by=order.by, handle=None)
        self._reporter.held(query.name, "paused", f"by {order.by}" if order.by else "")
        order.done(f"query '{query.name}' is paused; its checkpoint stays: headrace resume {query.name}")

    def restart_later(self, query: Query, finding: Finding, attempt: Attempt) -> None:
        """Keep a query that failed until its pause is over."""
        self._held[query.name] = Held(query=query, history_run=None, due=time.monotonic() + attempt.seconds)
        which = f"restart {attempt.number} of {attempt.limit} in {attempt.seconds:,.1f} s"
        told = Finding(
            code="HR861",
            what=f"query '{query.name}' failed with {finding.code} and starts again, {which}: {finding.what}",
            fix=finding.fix,
            where=finding.where,
        )
        self._notes.event("restarting", query.name, None, {"finding": finding.as_dict(), **asdict(attempt)})
        self._board.post(query.name, "restarting", error=finding, handle=None)
        self._reporter.held(query.name, "restarting", which)
        self._reporter.note(told)

    def release(self, query: str) -> Held:
        """Hold a query no longer."""
        held = self._held.pop(query)
        run = held.history_run
        if run is not None:
            self._notes.record(lambda history: history.end_run(run, "stopped"))
        return held

    def due(self) -> list[Query]:
        """Those whose pause is over."""
        now = time.monotonic()
        over = [held for held in self if held.due is not None and held.due <= now]
        return [self.release(held.query.name).query for held in over]
