"""Orders for the queries of a run carried out, in the thread that supervises them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from headrace.errors import Finding
from headrace.model import Project, Query
from headrace.operate.board import Board
from headrace.operate.orders import Order, Orders, has_ended
from headrace.run.holding import Holding
from headrace.run.query_run import QueryRun
from headrace.run.watching import Watching


class OrderDesk:
    """Takes orders, and keeps the queries that are to be started: at first all, then those that somebody wants again.

    anew: called with the name of a query that is started by order. stopped: called with one that is not started any
    more. An order to start is answered by `started` or `not_started`.
    """

    def __init__(
        self,
        project: Project,
        orders: Orders,
        board: Board,
        watching: Watching,
        holding: Holding,
        *,
        anew: Callable[[str], None],
        stopped: Callable[[Query], None],
    ) -> None:
        self.waiting: tuple[Query, ...] = ()
        self._project, self._orders, self._board = project, orders, board
        self._watching, self._holding = watching, holding
        self._anew, self._stopped = anew, stopped
        self._deferred: list[Order] = []
        self._starting: dict[str, Order] = {}

    def line_up(self, queries: Sequence[Query]) -> None:
        """Let these be started before those that wait already."""
        self.waiting = (*queries, *self.waiting)

    def take_out(self, query: str) -> None:
        """Let a query wait no more."""
        self.waiting = tuple(each for each in self.waiting if each.name != query)

    def begin_again(self, query: Query, order: Order) -> None:
        """Start a query as soon as nothing else is being started."""
        self._anew(query.name)
        self._starting[query.name] = order
        self.line_up([query])

    def started(self, query: str, batch: int) -> None:
        """A query has started, with this batch next."""
        if (order := self._starting.pop(query, None)) is not None:
            order.done(f"query '{query}' runs again, from batch {batch:,} on")

    def not_started(self, query: str, finding: Finding) -> None:
        """A start has failed."""
        if (order := self._starting.pop(query, None)) is not None:
            order.failed(finding)

    def take(self, starting: str | None) -> None:
        """Carry out what was ordered; `starting` is being started, and what is ordered of it waits for that."""
        given, self._deferred = self._deferred, []
        while (taken := self._orders.take()) is not None:
            given.append(taken)
        for order in given:
            name = order.query
            if name in self._starting or name == starting:
                self._deferred.append(order)
            elif (watched := self._watching.find(name)) is not None:
                _order_running(watched, order)
            else:
                self._order_other(name, order)

    def close(self) -> None:
        """The run is over: answer all that was not carried out, and all that comes."""
        for order in (*self._deferred, *self._starting.values()):
            order.failed(has_ended(order.query))
        self._orders.close()

    def _order_other(self, name: str, order: Order) -> None:
        """Carry out what is asked of a query that is held, waits for its first start, or has ended."""
        held, post = self._holding.find(name), self._board.get(name)
        query = next((each for each in self.waiting if each.name == name), held.query if held else None)
        if post is None or name not in self._project.queries:
            order.failed(_not_run(name))
        elif query is None:
            self._order_ended(name, str(post.state), order)
        elif order.verb == "pause" and held is not None and held.due is None:
            order.done(f"query '{name}' is already paused, since {post.since:%Y-%m-%d %H:%M:%S} UTC by {post.by}")
        else:
            self.take_out(name)
            if held is not None:
                self._holding.release(name)
            if order.verb == "pause":
                self._holding.pause(query, None, order)
            elif order.verb == "stop":
                self._stopped(query)
                order.done(f"query '{name}' has stopped")
            else:
                self.begin_again(query, order)

    def _order_ended(self, name: str, state: str, order: Order) -> None:
        if order.verb == "restart":
            self.begin_again(self._project.queries[name], order)
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
