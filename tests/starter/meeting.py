"""Where the functions of two queries meet: neither continues before the other has come."""

from __future__ import annotations

import threading

_BARRIER = threading.Barrier(2)


def meet() -> None:
    """Wait for the other one; raises BrokenBarrierError where it does not come."""
    _BARRIER.wait(60)
