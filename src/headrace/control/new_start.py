"""A new start of an application in its own process: what it gets from the start before, and whom it answers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from headrace.contract import Observer, QueryState
from headrace.contract.observer import WAITING_FOR
from headrace.control.board import Board, Order, OrderAnswer
from headrace.control.deploys import DeployResult, DeployStep
from headrace.errors import Finding, PlainData
from headrace.redaction import redacted

VARIABLE = "HEADRACE_NEW_START"


@dataclass(frozen=True, kw_only=True)
class NewStart(PlainData):
    """What a new start gets from the one before.

    connection: the descriptor on which the order's sender waits for the answer. accept_forward: accept changes that
    affect only new rows. paused: the queries that stay paused, with who has paused them. stopped: those that stay so.
    """

    connection: int
    accept_forward: bool = False
    paused: Mapping[str, str] = field(default_factory=dict)
    stopped: tuple[str, ...] = ()

    @classmethod
    def of_board(cls, board: Board, connection: int, *, accept_forward: bool) -> NewStart:
        """Return what the queries on `board` need."""
        states = board.states().values()
        return cls(
            connection=connection,
            accept_forward=accept_forward,
            paused={state.query: state.by for state in states if state.state in ("paused", "pausing")},
            stopped=tuple(state.query for state in states if state.state == "stopped"),
        )

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> NewStart | None:
        """Take what the start before has left in the environment; None in a first start."""
        text = environ.pop(VARIABLE, "")
        return cls.from_dict(json.loads(text)) if text else None

    def environ(self, first: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the new start, made of that of the first one."""
        return {**first, VARIABLE: json.dumps(self.as_dict())}

    def orders(self, queries: Iterable[str]) -> Sequence[Order]:
        """Return the orders that keep its queries paused and stopped, of those that are still declared."""
        held = [Order(verb="pause", query=query, by=by) for query, by in self.paused.items()]
        held += [Order(verb="stop", query=query) for query in self.stopped]
        return [order for order in held if order.query in set(queries)]


class NewStartAnswer(Observer):
    """Answers the order of a new start: once each query has shown that it works or does not, or at the end."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._connection: socket.socket | None = socket.socket(fileno=descriptor)
        self._steps: dict[str, DeployStep] = {}

    def expect(self, queries: Iterable[str]) -> NewStartAnswer:
        """Wait for these queries before the answer."""
        self._steps = {query: DeployStep(query=query, action="restart") for query in queries}
        return self

    def changed(self, state: QueryState) -> None:
        if state.query not in self._steps:
            return
        self._steps[state.query] = _with_state(self._steps[state.query], state)
        if all(step.outcome or step.findings for step in self._steps.values()):
            self.answer()

    def fail(self, findings: Iterable[Finding]) -> None:
        """Answer why the application does not run."""
        self._send(DeployResult(findings=tuple(findings), steps=tuple(self._steps.values()), pid=os.getpid()))

    def answer(self) -> None:
        """Answer with what is there; a second answer is not sent."""
        self._send(DeployResult(steps=tuple(self._steps.values()), pid=os.getpid(), carried_out=True))

    def _send(self, result: DeployResult) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            answer = json.dumps(OrderAnswer(deploy=result).as_dict(), default=str, ensure_ascii=False)
            with connection, suppress(OSError):  # Nothing depends on whether the sender still waits.
                connection.sendall(redacted(answer).encode() + b"\n")


def _with_state(step: DeployStep, state: QueryState) -> DeployStep:
    if state.state in ("failed", "restarting") and state.cause is not None:
        return replace(step, findings=(state.cause,))
    if state.is_started and state.healthy:
        return replace(step, outcome="runs again")
    if state.has_ended or state.state in (*WAITING_FOR, "paused"):
        return replace(step, outcome=f"is {state.state}")
    return step
