"""The queries of a run brought to their stop: each after the batch that runs, or all at once when asked twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.contract import Observer
from headrace.errors import HeadraceError
from headrace.run.query_run import QueryRun
from headrace.run.states import States
from headrace.run.stop import StopRequest

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Of a run that was told to stop now, what its queries may take; what is left of the watchdog's time is for the result.
BREAK_OFF_SECONDS = 2.0
# When the rest of their threads must have ended, once they count as ended. The watchdog's time is twice as long.
SETTLED_SECONDS = 5.0


class Stopping:
    """Does what a request to stop asks for, step by step."""

    def __init__(self, request: StopRequest, states: States, reporter: Observer) -> None:
        self._request = request
        self._states = states
        self._reporter = reporter
        self._reported: bool | None = None
        self._now_at: float | None = None
        self._stops: dict[str, threading.Thread] = {}

    @property
    def waits_no_more(self) -> bool:
        """Whether the run was told to stop now, and what has not stopped since hangs."""
        return self._now_at is not None and time.monotonic() - self._now_at > BREAK_OFF_SECONDS

    def settle(self) -> None:
        """Wait until the threads of the queries that were broken off have ended, but not for one that hangs.

        A query counts as ended before its thread has told Spark so. A session that is stopped in between makes that
        thread fail, and Java print its stack.
        """
        until = (self._now_at or time.monotonic()) + SETTLED_SECONDS
        for thread in self._stops.values():
            thread.join(max(0.0, until - time.monotonic()))

    def step(self, running: Iterable[QueryRun]) -> None:
        """Stop each query that may be stopped now."""
        now = self._request.now
        if now and self._now_at is None:
            self._now_at = time.monotonic()
        if self._reported != now:
            self._reported = now
            self._reporter.stopping(now=now)
        for watched in running:
            self.one(watched, now=now)

    def one(self, watched: QueryRun, *, now: bool = False) -> None:
        """Stop one query if it may be stopped now."""
        if not watched.asked:
            watched.asked, watched.last_wanted = True, _running_batch(watched)
        is_pause = watched.order is not None and watched.order.verb == "pause" and not self._request
        self._states.change(watched.query.name, "pausing" if is_pause else "stopping")
        if now:
            self._break_off(watched.running.handle)
        elif _is_done(watched) or not _busy(watched):
            watched.running.handle.stop()

    def _break_off(self, handle: StreamingQuery) -> None:
        """Stop a query in a thread of its own: Spark waits for the batch, whose function may hang for ever."""
        run_id = str(handle.runId)
        before = self._stops.get(run_id)
        if before is None or not before.is_alive():  # Spark has given up, after spark.sql.streaming.stopTimeout.
            self._stops[run_id] = threading.Thread(target=_stop, args=(handle,), name="headrace-stop", daemon=True)
            self._stops[run_id].start()


def _stop(handle: StreamingQuery) -> None:
    with suppress(Exception):  # It is stopped again as long as it is active.
        handle.stop()


def last_committed(checkpoint: Path) -> int | None:
    """The last batch that was committed; a checkpoint that cannot be read is reported by the start."""
    try:
        return Checkpoint(checkpoint).last_committed
    except (HeadraceError, OSError):
        return None


def _running_batch(watched: QueryRun) -> int:
    """The batch that runs, or comes next.

    Spark reports a batch some time after its commit, when the next one may be running already. The last report does not
    say which one that is: a late report of the batch before would be taken for its end, and it would be broken off.
    """
    known = (last_committed(watched.running.sink_run.checkpoint), watched.last_batch)
    return max((each for each in known if each is not None), default=-1) + 1


def _is_done(watched: QueryRun) -> bool:
    wanted = watched.last_wanted
    return wanted is not None and watched.last_batch is not None and watched.last_batch >= wanted


def _busy(watched: QueryRun) -> bool:
    return bool(watched.running.handle.status.get("isTriggerActive"))
