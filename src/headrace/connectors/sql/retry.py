"""How long a batch is tried again when its database does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class Retry:
    """Pauses in seconds that double from `FIRST_PAUSE` to `LONGEST_PAUSE`, for `seconds` in all."""

    seconds: float
    clock: Callable[[], float] = time.monotonic

    def pauses(self) -> Iterator[float]:
        """The pause before each next attempt; ends when the time is over."""
        ends = self.clock() + self.seconds
        pause = FIRST_PAUSE
        while self.clock() + pause <= ends:
            yield pause
            pause = min(2 * pause, LONGEST_PAUSE)
