"""Asking a run to stop: once for after the running batch, twice for now, which is kept whatever hangs."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# How long a run that was asked twice may take to break its batches off and write down how it ended.
GRACE_SECONDS = 10.0
ASKS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """How often a run was asked to stop; safe to ask from any thread.

    signalled: how often by a signal, also where the main thread hangs and has not come to ask.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._lock = threading.Lock()
        self.signalled = 0

    def ask(self) -> None:
        """Ask once more."""
        with self._lock:
            self._asked += 1

    def ask_for(self, *, now: bool) -> None:
        """Ask for a stop now, or after the running batches; where it was asked for that already, nothing changes."""
        with self._lock:
            self._asked = max(self._asked, 2 if now else 1)

    @property
    def asked(self) -> int:
        """How often, as far as the main thread has come."""
        return self._asked

    @property
    def heard(self) -> int:
        """How often, also as far as only its signals have come."""
        return max(self._asked, self.signalled)

    @property
    def draining(self) -> bool:
        """Whether the running batches may still finish, and no more."""
        return self._asked == 1

    @property
    def now(self) -> bool:
        """Whether nothing is to be waited for."""
        return self._asked > 1

    def __bool__(self) -> bool:
        return self._asked > 0


@contextmanager
def stop_on_signals(request: StopRequest, *, end_now: Callable[[int], None] | None = None) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into asking `request`, as long as the block runs; only the main thread can.

    end_now: called with the signal's number when the block continues after it was asked twice, or is asked once more;
    it is to end the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handler(_signal: int, _frame: FrameType | None) -> None:
        request.ask()

    before = {each: signal.signal(each, handler) for each in ASKS}
    try:
        with _watchdog(request, end_now):
            yield request
    finally:
        for each, old in before.items():
            signal.signal(each, old)


@contextmanager
def _watchdog(request: StopRequest, end_now: Callable[[int], None] | None) -> Iterator[None]:
    """Count the signals in a thread of its own, as the main thread may hang in a call into the JVM or a client.

    Python writes each signal's number to a socket from its handler in C, whatever the main thread does.
    """
    if end_now is None:
        yield
        return
    hears, tells = socket.socketpair()
    tells.setblocking(False)

    def watch() -> None:
        asked, last = 0, signal.SIGTERM.value
        while True:
            hears.settimeout(GRACE_SECONDS if asked > 1 else None)
            try:
                numbers = hears.recv(16)
            except TimeoutError:
                numbers = b""
                asked += 1
            else:
                if not numbers:
                    return  # The block has ended.
            for number in numbers:
                if number in ASKS:
                    asked, last = asked + 1, number
            request.signalled = asked
            if asked > 2:
                end_now(last)
                return

    before = signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, name="stop", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        tells.close()


def end_process(number: int) -> None:
    """End this process as a signal would, with the JVM that it has started, without waiting for anything."""
    with suppress(BaseException):
        os.write(2, b"headrace: ended at once; a batch that was not committed comes again at the next start\n")
    end_jvm()
    os._exit(128 + number)


def end_jvm() -> None:
    """End the JVM that this process has started, with its workers, whatever they do."""
    from headrace.spark.jvm import gateway
    from headrace.storage.private import discard_local_directories

    for end in (gateway.kill, discard_local_directories):
        with suppress(BaseException):
            end()
