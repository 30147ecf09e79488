"""A start enters itself into a table's ledger, so that older drivers write nothing more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headrace.connectors.exactly_once.batches import Conflict
from headrace.connectors.exactly_once.retry import CONTENDED, Retry
from headrace.errors import Finding, SinkError

Entered = TypeVar("Entered")


def take_epoch(
    enter: Callable[[], Entered],
    contended: Finding,
    *,
    retry: Retry = CONTENDED,
    sleep: Callable[[float], None] = time.sleep,
) -> Entered:
    """What `enter` gives, which is called again while other writers are quicker; SinkError with `contended` at the end.

    `enter` looks at the table as it is now, compares its ledger with the checkpoint and commits the next epoch upon
    that very state, or raises Conflict: a batch that comes in between is seen by the next call.
    """
    pauses = retry.pauses()
    while True:
        try:
            return enter()
        except Conflict:
            pause = next(pauses, None)
        if pause is None:
            raise SinkError(contended)
        sleep(pause)
