"""When an attempt is made again."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Pauses that double from one to the next, until the time or the attempts are used up.

    seconds: all pauses together. attempts: with the first one. longest_seconds: of a pause. uneven: each pause is cut
    by chance, since two that were in each other's way would meet again if both waited alike.
    """

    seconds: float = math.inf
    attempts: float = math.inf
    longest_seconds: float = 10.0
    uneven: bool = False
    clock: Callable[[], float] = time.monotonic

    def pauses(self) -> Iterator[float]:
        """The seconds before each further attempt."""
        ends, attempt, pause = self.clock() + self.seconds, 1, FIRST_PAUSE_SECONDS
        while attempt < self.attempts and self.clock() + pause <= ends:
            yield pause * random.uniform(0.5, 1.0) if self.uneven else pause
            attempt, pause = attempt + 1, min(2 * pause, self.longest_seconds)


# Where others commit to the same table.
CONTENDED = Retry(attempts=8, longest_seconds=5.0, uneven=True)
