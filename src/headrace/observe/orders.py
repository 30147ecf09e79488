"""Orders to a running application, from another terminal or another thread, and what became of each."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeAlias, get_args

from headrace.errors import Finding

Verb: TypeAlias = Literal["stop", "pause", "resume", "restart"]
VERBS: tuple[Verb, ...] = get_args(Verb)


@dataclass(frozen=True, kw_only=True)
class OrderAnswer:
    """What became of an order: a sentence, and the finding where it was not done."""

    said: str = ""
    finding: Finding | None = None

    @property
    def done(self) -> bool:
        return self.finding is None

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain data, as it goes over the socket."""
        return {"done": self.done, "said": self.said, "finding": self.finding.as_dict() if self.finding else None}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> OrderAnswer:
        """The answer that `as_dict` was taken of."""
        finding = plain.get("finding")
        return cls(said=str(plain.get("said", "")), finding=Finding.from_dict(finding) if finding else None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """What is to be done with a query, and who wants it; `answer` is there once it is done or cannot be."""

    verb: Verb
    query: str
    by: str = ""
    answer: Future[OrderAnswer] = field(default_factory=Future)

    def done(self, said: str) -> None:
        """Answer that it is done; only the first answer counts."""
        if not self.answer.done():
            self.answer.set_result(OrderAnswer(said=said))

    def failed(self, finding: Finding) -> None:
        """Answer why it is not done."""
        if not self.answer.done():
            self.answer.set_result(OrderAnswer(finding=finding))


class Orders:
    """Orders on their way to the thread that carries them out; safe to give from any thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Order] = SimpleQueue()
        self._wake: Callable[[], None] = lambda: None
        self._closed = False

    def on_order(self, wake: Callable[[], None]) -> None:
        """Have `wake` called whenever an order was given."""
        self._wake = wake

    def give(self, order: Order) -> Order:
        """Hand an order over; it is answered in the end, whatever happens."""
        self._queue.put(order)
        if self._closed:
            self.close()
        self._wake()
        return order

    def take(self) -> Order | None:
        """The next order, if there is one."""
        with suppress(Empty):
            return self._queue.get_nowait()
        return None

    def close(self) -> None:
        """Answer what was given too late, and all that is given from now on."""
        self._closed = True
        while (order := self.take()) is not None:
            order.failed(has_ended(order.query))


def has_ended(query: str) -> Finding:
    """The application came to its end before the order."""
    return Finding(
        code="HR851",
        what=f"the application has ended, and query '{query}' with it",
        fix="see how it ended: headrace status",
    )


def who() -> str:
    """Who gives orders from this process, as people know them: the user and the terminal."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # A user without a name.
        name = f"user {os.getuid()}"
    with suppress(OSError, ValueError, AttributeError):
        return f"{name} on {os.ttyname(sys.stdin.fileno())}"
    return f"{name} (process {os.getpid()})"
