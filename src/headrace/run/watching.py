"""The queries that run, and what Spark's listener tells of them."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator

from headrace.run.query_run import QueryRun
from headrace.run.running import Running
from headrace.spark.stream.listener import Listener, ListenerEvent

POLL_SECONDS = 0.1
LAST_EVENTS_SECONDS = 3.0


class Watching:
    """The running queries by Spark's id of each start; takes the listener's events, always in one thread.

    progressed: takes the report of a batch. worked: is told of each query that has made one, or has nothing to do.

    starting: a query is being started, so that events of an unknown start are kept: they may be its first ones.
    """

    def __init__(
        self, listener: Listener, progressed: Callable[[QueryRun, str], None], worked: Callable[[str], None]
    ) -> None:
        self.starting = False
        self._listener = listener
        self._progressed, self._worked = progressed, worked
        self._running: dict[str, QueryRun] = {}
        self._former: dict[str, QueryRun] = {}
        self._early: list[ListenerEvent] = []

    def __iter__(self) -> Iterator[QueryRun]:
        return iter(list(self._running.values()))

    def __bool__(self) -> bool:
        return bool(self._running)

    def find(self, query: str) -> QueryRun | None:
        """The running query of this name."""
        return next((watched for watched in self if watched.query.name == query), None)

    def add(self, watched: QueryRun) -> None:
        """Watch a query that has started."""
        self._running[str(watched.running.handle.runId)] = watched

    def restarted(self, watched: QueryRun, running: Running) -> None:
        """Watch the next start of a query; events of the one before may still come."""
        self._forget_former(watched)
        before = str(watched.running.handle.runId)
        self._former[before] = self._running.pop(before)
        watched.running = running
        self.add(watched)

    def remove(self, watched: QueryRun) -> None:
        """Watch a query no more."""
        self._running.pop(str(watched.running.handle.runId), None)
        self._forget_former(watched)

    def end_start(self, *, heard: bool) -> None:
        """Take what was kept of a start that has come to its end, or forget it."""
        self.starting = False
        early, self._early = self._early, []
        for event in early if heard else ():
            self._take(event)

    def hear(self, *, seconds: float = POLL_SECONDS) -> None:
        """Wait up to `seconds` for one event, then take all that are there."""
        events = self._listener.events
        try:
            event = events.get(timeout=seconds) if seconds else events.get_nowait()
            while True:
                self._take(event)
                event = events.get_nowait()
        except queue.Empty:
            return

    def hear_out(self, watched: QueryRun) -> None:
        """Take the events of a query that has ended, the last of which tells of its end."""
        until = time.monotonic() + LAST_EVENTS_SECONDS
        while not watched.terminated and time.monotonic() < until:
            self.hear()
        watched.terminated = False

    def _take(self, event: ListenerEvent) -> None:
        watched = self._running.get(event.run_id) or self._former.get(event.run_id)
        if watched is None:
            if self.starting:
                self._early.append(event)
            return
        if event.kind == "terminated" and event.run_id == str(watched.running.handle.runId):
            watched.terminated = True
        watched.event_at = time.monotonic()
        if event.kind == "progress":
            self._progressed(watched, event.json)
        if event.kind in ("progress", "idle"):
            self._worked(watched.query.name)

    def _forget_former(self, watched: QueryRun) -> None:
        self._former = {run_id: other for run_id, other in self._former.items() if other is not watched}
