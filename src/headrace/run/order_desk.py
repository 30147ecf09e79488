"""Orders for the queries of a run carried out, in the thread that supervises them."""

from __future__ import annotations

import os
from collections.abc import Callable

from headrace.errors import Finding
from headrace.model import Query
from headrace.observe.orders import Order, Orders, has_ended
from headrace.run.query_run import QueryRun
from headrace.run.states import States, Supervised
from headrace.run.watching import Watching


class OrderDesk:
    """Takes orders to the queries of a run.

    stopped: called with one that is not started any more. An order to start is answered by `started` or `not_started`.
    """

    def __init__(self, orders: Orders, watching: Watching, states: States, *, stopped: Callable[[Query], None]) -> None:
        self._orders, self._watching, self._states, self._stopped = orders, watching, states, stopped
        self._deferred: list[Order] = []

    def started(self, query: str, batch: int) -> None:
        """A query has started, with this batch next."""
        if (order := self._taken(query)) is not None:
            order.done(f"query '{query}' runs again, from batch {batch:,} on")

    def not_started(self, query: str, finding: Finding) -> None:
        """A start has failed."""
        if (order := self._taken(query)) is not None:
            order.failed(finding)

    def take(self) -> None:
        """Carry out what was ordered; what is ordered of a query that is being started waits for that."""
        given, self._deferred = self._deferred, []
        while (taken := self._orders.take()) is not None:
            given.append(taken)
        for order in given:
            supervised = self._states.find(order.query)
            if supervised is None:
                order.failed(_not_run(order.query))
            elif supervised.order is not None or supervised.state.state == "starting":
                self._deferred.append(order)
            elif (watched := self._watching.find(order.query)) is not None:
                _order_running(watched, order)
            else:
                self._order_other(supervised, order)

    def close(self) -> None:
        """The run is over: answer all that was not carried out, and all that comes."""
        for order in (*self._deferred, *(each.order for each in self._states if each.order is not None)):
            order.failed(has_ended(order.query))
        self._orders.close()

    def _taken(self, query: str) -> Order | None:
        supervised = self._states[query]
        order, supervised.order = supervised.order, None
        return order

    def _order_other(self, supervised: Supervised, order: Order) -> None:
        """Carry out what is asked of a query that is paused, waits for its start or restart, or has ended."""
        name, state = order.query, supervised.state
        if state.has_ended:
            self._order_ended(name, str(state.state), order)
        elif order.verb == "pause" and state.state == "paused":
            order.done(f"query '{name}' is already paused, since {state.since:%Y-%m-%d %H:%M:%S} UTC by {state.by}")
        elif order.verb == "pause":
            self._states.pause(name, order)
        elif order.verb == "stop":
            self._stopped(supervised.query)
            order.done(f"query '{name}' has stopped")
        else:
            self._states.start_again(name, order)

    def _order_ended(self, name: str, state: str, order: Order) -> None:
        if order.verb == "restart":
            self._states.start_again(name, order)
        elif order.verb == "stop":
            order.done(f"query '{name}' is not running: it has {state}")
        else:
            what = f"query '{name}' cannot be {order.verb}d: it has {state}"
            order.failed(Finding(code="HR854", what=what, fix=f"start it again: headrace restart {name}"))


def _order_running(watched: QueryRun, order: Order) -> None:
    if order.verb == "resume":
        order.done(f"query '{order.query}' is running")
        return
    if watched.order is not None and watched.order.verb == order.verb:
        watched.order.answer.add_done_callback(lambda answer: order.answer.set_result(answer.result()))
        return
    if watched.order is not None:
        watched.order.failed(_overtaken(watched.order, order))
    watched.order = order


def _overtaken(order: Order, by: Order) -> Finding:
    return Finding(
        code="HR855",
        what=f"the order to {order.verb} query '{order.query}' was overtaken by one to {by.verb} it"
        + (f", by {by.by}" if by.by else ""),
        fix="see how the query stands: headrace status",
    )


def _not_run(query: str) -> Finding:
    return Finding(
        code="HR850",
        what=f"process {os.getpid()} does not run query '{query}'",
        fix=f"start it beside: headrace run {query}",
    )
