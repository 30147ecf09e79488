"""How each query of a running application stands, the orders to it, and how a run went."""

from __future__ import annotations

import getpass
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from headrace.contract import Outcome
from headrace.contract.observer import QueryState
from headrace.control.deploys import DeployRequest, DeployResult
from headrace.errors import EXIT_FENCED, EXIT_REFUSED, Finding, PlainData
from headrace.model import Project


@dataclass(frozen=True, kw_only=True)
class LiveStart:
    """What the newest start of a query gives to others.

    handle: Spark's StreamingQuery. columns: gives the names and types of those of each source, and of the result under
    no name.
    """

    handle: Any
    columns: Callable[[], Mapping[str, Sequence[tuple[str, str]]]]


class Board:
    """The states of an application's queries; written by the thread that supervises them.

    projects: by query, the one that it is declared in, as it runs. project: the newest that was deployed, if any.
    refreshed_at: by query, when each of its tables was computed last. due_at: by query that runs on, until when Spark
    should have reported a batch, or nothing to do. retries, retrying: how often the sink of each has tried a
    batch again in this application, and which ones do so now. beat_at: when the supervisor last came by.
    """

    def __init__(self) -> None:
        self._states: dict[str, QueryState] = {}
        self._live: dict[str, LiveStart] = {}
        self._changed = threading.Condition()
        self.projects: dict[str, Project] = {}
        self.project: Project | None = None
        self.refreshed_at: dict[str, Mapping[str, float]] = {}
        self.due_at: Mapping[str, float] = {}
        self.retries: dict[str, int] = {}
        self.retrying: frozenset[str] = frozenset()
        self.over = False
        self.beat_at = time.monotonic()

    def begin(self, states: Iterable[QueryState]) -> None:
        """Show all queries of the application at once: who waits for the first of them knows them all."""
        with self._changed:
            self._states.update((state.query, state) for state in states)
            self._changed.notify_all()

    def post(self, state: QueryState, live: LiveStart | None = None) -> None:
        """Show how a query stands now; `live`: what it has newly started as, which goes when it runs no more."""
        with self._changed:
            self._states[state.query] = state
            if live is not None:
                self._live[state.query] = live
            elif not state.is_started:
                self._live.pop(state.query, None)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def states(self) -> Mapping[str, QueryState]:
        """Return all of them, by query."""
        with self._changed:
            return dict(self._states)

    def get(self, query: str) -> QueryState | None:
        """Return the state of one query, if the application has it."""
        with self._changed:
            return self._states.get(query)

    def live(self, query: str) -> LiveStart | None:
        """Return what a query runs as, while it does."""
        with self._changed:
            return self._live.get(query)

    def wait(self, holds: Callable[[Mapping[str, QueryState]], bool], seconds: float | None = None) -> bool:
        """Wait until something holds of the states, or the application is over; False when the time is up before."""
        with self._changed:
            return self._changed.wait_for(lambda: self.over or holds(self._states), seconds)

    def beat(self, due_at: Mapping[str, float]) -> None:
        """Note that the supervising thread lives, and when each query is due."""
        self.due_at, self.beat_at = due_at, time.monotonic()


QueryVerb: TypeAlias = Literal["stop", "pause", "resume", "restart"]
Verb: TypeAlias = Literal["stop", "pause", "resume", "restart", "deploy"]
VERBS: tuple[QueryVerb, ...] = get_args(QueryVerb)


@dataclass(frozen=True, kw_only=True)
class OrderAnswer(PlainData):
    """The answer of an application to an order.

    Attributes:
        said: The outcome as a sentence.
        finding: Why the order was not carried out; None if it was.
        deploy: The result of a deploy; None for another order.
    """

    derived: ClassVar[tuple[str, ...]] = ("done",)
    optional: ClassVar[tuple[str, ...]] = ("deploy",)
    said: str = ""
    finding: Finding | None = None
    deploy: DeployResult | None = None

    @property
    def done(self) -> bool:
        """Whether the order was carried out."""
        return self.finding is None

    @property
    def begins_again(self) -> bool:
        """Whether it is a deploy that lets the application begin again."""
        return self.deploy is not None and self.deploy.done and bool(self.deploy.reasons)


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """What is to be done with a query, and who wants it; `answer` is there once it is done or cannot be.

    project: the one whose code a query is to be started with; None: as it runs. removes: the query is declared no more.
    deploy: of an order to deploy, which is of no single query.
    """

    verb: Verb
    query: str = ""
    by: str = ""
    project: Project | None = None
    removes: bool = False
    deploy: DeployRequest | None = None
    answer: Future[OrderAnswer] = field(default_factory=Future)

    def succeed(self, sentence: str) -> None:
        """Answer that it is done; only the first answer counts."""
        if not self.answer.done():
            self.answer.set_result(OrderAnswer(said=sentence))

    def answer_failed(self, finding: Finding) -> None:
        """Answer why it is not done."""
        if not self.answer.done():
            self.answer.set_result(OrderAnswer(finding=finding))

    def report_deploy(self, result: DeployResult) -> None:
        """Answer what a deploy has done."""
        if not self.answer.done():
            self.answer.set_result(OrderAnswer(deploy=result))


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
        """Return the next order, if there is one."""
        with suppress(Empty):
            return self._queue.get_nowait()
        return None

    def close(self) -> None:
        """Answer what was given too late, and all that is given from now on."""
        self._closed = True
        while (order := self.take()) is not None:
            order.answer_failed(application_ended(order.query))


def application_ended(query: str) -> Finding:
    """Return the finding that the application ended before the order."""
    return Finding(
        code="HR851",
        what="the application has ended" + (f", and query '{query}' with it" if query else ""),
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


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The ends of all queries of one run.

    Attributes:
        outcomes: The end of each query.
    """

    outcomes: tuple[Outcome, ...]

    @property
    def exit_code(self) -> int:
        """3 when a newer driver has taken over a query, 78 when each was refused, 1 when one failed, else 0."""
        if any(outcome.fenced for outcome in self.outcomes):
            return EXIT_FENCED
        if self.outcomes and all(outcome.refused for outcome in self.outcomes):
            return EXIT_REFUSED
        return 1 if any(outcome.state == "failed" for outcome in self.outcomes) else 0
