"""The queries of a run brought to their stop: each after the batch that runs, or all at once when asked twice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.checkpoint import Checkpoint
from headrace.errors import HeadraceError
from headrace.run.notes import Notes
from headrace.run.query_run import QueryRun
from headrace.run.result import Reporter
from headrace.run.stop import StopRequest


class Stopping:
    """Does what a request to stop asks for, step by step."""

    def __init__(self, request: StopRequest, notes: Notes, reporter: Reporter) -> None:
        self._request = request
        self._notes = notes
        self._reporter = reporter
        self._told: bool | None = None

    def step(self, running: Iterable[QueryRun]) -> None:
        """Stop each query that may be stopped now."""
        now = self._request.now
        if self._told != now:
            self._told = now
            self._reporter.stopping(now=now)
        for watched in running:
            self.one(watched, now=now)

    def one(self, watched: QueryRun, *, now: bool = False) -> None:
        """Stop one query if it may be stopped now."""
        if not watched.asked:
            self._ask(watched)
        if now or _is_done(watched) or not _busy(watched):
            watched.running.handle.stop()

    def _ask(self, watched: QueryRun) -> None:
        watched.asked, watched.last_wanted = True, _running_batch(watched)
        run_id = watched.history_run
        if run_id is not None:
            self._notes.record(lambda history: history.state(run_id, "stopping"))


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
