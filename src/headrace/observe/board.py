"""How each query of a running application stands at this moment, for whoever asks from another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.contract.query_state import QueryState


@dataclass(frozen=True, kw_only=True)
class LiveStart:
    """What the newest start of a query gives to others.

    handle: Spark's StreamingQuery. columns: gives the names and types of those of each source, and of the result under
    no name.
    """

    handle: Any
    columns: Callable[[], Mapping[str, Sequence[tuple[str, str]]]]


class Board:
    """The states of an application's queries; written by the thread that supervises them.

    refreshed_at: by query, when each of its tables was computed last. due_at: by query that runs on, until when Spark
    should have told of a batch, or of having nothing to do. retries, retrying: how often the sink of each has tried a
    batch again in this application, and which ones do so now. beat_at: when the supervisor last came by.
    """

    def __init__(self) -> None:
        self._states: dict[str, QueryState] = {}
        self._live: dict[str, LiveStart] = {}
        self._changed = threading.Condition()
        self.refreshed_at: dict[str, Mapping[str, float]] = {}
        self.due_at: Mapping[str, float] = {}
        self.retries: dict[str, int] = {}
        self.retrying: frozenset[str] = frozenset()
        self.over = False
        self.beat_at = time.monotonic()

    def begin(self, states: Iterable[QueryState]) -> None:
        """Show all queries of the application at once: who waits for the first of them knows them all."""
        with self._changed:
            self._states.update((state.query, state) for state in states)
            self._changed.notify_all()

    def post(self, state: QueryState, live: LiveStart | None = None) -> None:
        """Show how a query stands now; `live`: what it has newly started as, which goes when it runs no more."""
        with self._changed:
            self._states[state.query] = state
            if live is not None:
                self._live[state.query] = live
            elif not state.is_started:
                self._live.pop(state.query, None)
            self._changed.notify_all()

    def close(self) -> None:
        """The application is over."""
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def states(self) -> Mapping[str, QueryState]:
        """All of them, by query."""
        with self._changed:
            return dict(self._states)

    def get(self, query: str) -> QueryState | None:
        """That of one query, if the application has it."""
        with self._changed:
            return self._states.get(query)

    def live(self, query: str) -> LiveStart | None:
        """What a query runs as, while it does."""
        with self._changed:
            return self._live.get(query)

    def wait(self, holds: Callable[[Mapping[str, QueryState]], bool], seconds: float | None = None) -> bool:
        """Wait until something holds of the states, or the application is over; False when the time is up before."""
        with self._changed:
            return self._changed.wait_for(lambda: self.over or holds(self._states), seconds)

    def beat(self, due_at: Mapping[str, float]) -> None:
        """The supervising thread lives, and knows when each query is due."""
        self.due_at, self.beat_at = due_at, time.monotonic()
