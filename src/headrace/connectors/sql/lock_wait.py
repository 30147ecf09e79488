"""A start that waits for the lock of another driver, and says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.silence import IDLE_SECONDS
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError

T = TypeVar("T")
# Longer than a server lets a driver sleep in its transaction.
PATIENCE_SECONDS = 2.5 * IDLE_SECONDS


def patiently(attempt: Callable[[], T], dialect: Dialect, context: SinkContext) -> T:
    """What `attempt` gives; while a lock keeps it out, it is made again, and the user is shown who holds the lock.

    An older driver that sleeps or is cut off inside its transaction keeps its locks until the server ends its session.
    """
    ends = time.monotonic() + PATIENCE_SECONDS
    told = False
    while True:
        try:
            return attempt()
        except SinkError as error:
            # The sink says in a sentence what the client library has raised.
            cause = error.__cause__ or error.__context__
            if cause is None or not dialect.waits_for_lock(cause) or time.monotonic() > ends:
                raise
            what = error.findings[0].what
        if not told:
            told = True
            fix = "nothing, if it is an older driver of the query: the server ends its session; else end the other one"
            wait = f"{what}; the start waits for it, for up to {PATIENCE_SECONDS:.0f} s"
            context.on_warning(Finding(code="HR480", what=wait, fix=fix))
