"""Waiting for a server: closes connections whose server stopped responding, and reports who holds a lock."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from headrace.connectors.sql.dialect import Dialect
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError

# After so long without an answer the server is asked, on another connection, whether it still works on the statement.
SILENCE_SECONDS = 30.0
# How long a server may take to accept a connection, and to answer that question.
CONNECT_SECONDS = 10.0
# How long the server lets a session hold its transaction open without a statement; then the session ends, and its
# locks are free for a newer driver.
IDLE_SECONDS = 60
# How long one statement waits for a lock before the server says so.
LOCK_SECONDS = 20
_LOOK_SECONDS = 0.25
T = TypeVar("T")
_PAUSE_SECONDS = 0.1
# Longer than a server lets a driver sleep in its transaction.
PATIENCE_SECONDS = 2.5 * IDLE_SECONDS
# A shorter wait is not reported: another start may be making the same tables.
WARN_AFTER_SECONDS = 1.0


@dataclass(eq=False)
class Waiting:
    """One statement that waits for the server: since when, how to ask whether it works, and how to end the wait."""

    seconds: float
    works: Callable[[], bool]
    cut: Callable[[], None]
    since: float
    asking: bool = False
    was_cut: bool = False


class Watch:
    """One thread of this process that looks at all waiting statements, started with the first.

    A client library cannot do it: libpq has no time-out for reading, that of PyMySQL would also end a long statement
    that the server does work on, and keepalives are answered by the other machine's kernel, or a firewall's, while the
    server is stopped or gone.
    """

    def __init__(self) -> None:
        self._waiting: set[Waiting] = set()
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, waiting: Waiting) -> None:
        with self._lock:
            self._waiting.add(waiting)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="silent servers", daemon=True)
                self._thread.start()
            self._lock.notify()

    def remove(self, waiting: Waiting) -> None:
        with self._lock:
            self._waiting.discard(waiting)

    def _look(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    self._lock.wait()
                now = time.monotonic()
                due = [
                    waiting
                    for waiting in self._waiting
                    if not waiting.asking and now - waiting.since >= waiting.seconds
                ]
                for waiting in due:
                    waiting.asking = True
            for waiting in due:
                # The question may wait for the server too, and others are not to wait for it.
                threading.Thread(target=self._ask, args=(waiting,), name="ask a server", daemon=True).start()
            time.sleep(_LOOK_SECONDS)

    def _ask(self, waiting: Waiting) -> None:
        works = False
        with suppress(Exception):
            works = waiting.works()
        with self._lock:
            if works:
                waiting.since, waiting.asking = time.monotonic(), False
            elif waiting in self._waiting:
                waiting.was_cut = True
                with suppress(Exception):
                    waiting.cut()


_watch = Watch()


def _reset_watch() -> None:
    """Start with a new watch in a forked worker of Spark, which has none of its parent's threads."""
    global _watch
    _watch = Watch()


os.register_at_fork(after_in_child=_reset_watch)


@contextmanager
def cut_when_silent(
    works: Callable[[], bool], cut: Callable[[], None], error: Callable[[str], Exception], *, seconds: float
) -> Iterator[None]:
    """Wait for a server in this block; when it is silent and `works` says no, `cut` ends the wait.

    Then the block's exception is replaced by `error` of a sentence.
    """
    waiting = Waiting(seconds=seconds, works=works, cut=cut, since=time.monotonic())
    watch = _watch
    watch.add(waiting)
    try:
        yield
    except Exception as raised:
        if waiting.was_cut:
            sentence = (
                f"it has not answered for {seconds:.0f} s, and does not work on the statement: the connection was cut"
            )
            raise error(sentence) from raised
        raise
    finally:
        watch.remove(waiting)


def shut(descriptor: int) -> None:
    """End a connection from another thread, so that its readers and writers get an error."""
    with socket.socket(fileno=os.dup(descriptor)) as other:
        other.shutdown(socket.SHUT_RDWR)


def wait_for_locks(attempt: Callable[[], T], dialect: Dialect, context: SinkContext) -> T:
    """Return what `attempt` returns; while a lock is held, try again and warn the user of its holder.

    An older driver that sleeps or is cut off inside its transaction keeps its locks until the server ends its session;
    that of a file keeps them until its process continues or ends.
    """
    begins, has_warned = time.monotonic(), False
    while True:
        try:
            return attempt()
        except SinkError as error:
            # The sink says in a sentence what the client library has raised.
            cause = error.__cause__ or error.__context__
            if cause is None or not dialect.waits_for_lock(cause) or time.monotonic() > begins + PATIENCE_SECONDS:
                raise
            fault = error.findings[0].what
        if not has_warned and time.monotonic() - begins >= WARN_AFTER_SECONDS:
            has_warned = True
            wait = f"{fault}; the start waits for it, for up to {PATIENCE_SECONDS:.0f} s"
            fix = (
                "nothing, if it is an older driver that its server ends; else end the session or process that holds it"
            )
            context.on_warning(Finding(code="HR480", what=wait, fix=fix))
        time.sleep(_PAUSE_SECONDS)
