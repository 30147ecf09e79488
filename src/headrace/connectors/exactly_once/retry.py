"""Pauses between attempts to commit where others commit too."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

ATTEMPTS = 8
_FIRST, _LONGEST = 0.2, 5.0


def attempts(most: int = ATTEMPTS, *, sleep: Callable[[float], None] = time.sleep) -> Iterator[int]:
    """The numbers of the attempts, from 0 on; before each but the first it waits, ever longer and never equally long.

    Two writers that were in each other's way would meet again if both waited alike.
    """
    for attempt in range(most):
        if attempt:
            sleep(random.uniform(0.5, 1.0) * min(_FIRST * 2 ** (attempt - 1), _LONGEST))
        yield attempt
