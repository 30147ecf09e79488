"""What a run is at, in one line: starting Spark, starting a query, running, or stopping."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.cli.view.formatting import duration

FINISHING = "finishing the running batches; Ctrl-C again stops at once"
STOPPING = "stopping at once; what a batch has begun is made again at the next start"


class Headline:
    """The line; it names how long the run lasts, so that it is seen to be alive."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self._what = "starting Spark"
        self._stopping = False

    def text(self) -> str:
        """The line as it is now."""
        seconds = int(self._clock() - self._begun)
        return f"{self._what} ({f'{seconds} s' if seconds < 60 else duration(1000 * seconds)})"

    def starting(self, query: str) -> None:
        """Spark is there, and a query is being started."""
        self._say(f"starting {query}")

    def started(self) -> None:
        """A query has started."""
        self._say("running; Ctrl-C stops after the running batches")

    def stopping(self, *, now: bool) -> None:
        """The run was asked to stop."""
        self._stopping = True
        self._what = STOPPING if now else FINISHING

    def end(self) -> None:
        """The run has ended."""
        self._what = "ended"

    def _say(self, what: str) -> None:
        if not self._stopping:
            self._what = what
