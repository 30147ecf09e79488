"""Queries stopped, paused and started again: asked by a signal, another thread or another terminal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from headrace.contract import Observer
from headrace.control.board import Board, Order, Orders, application_ended
from headrace.control.new_start import NewStart
from headrace.errors import Finding
from headrace.model import Continuous, Query
from headrace.runner.query_run import QueryRun, Watching
from headrace.runner.states import States, Supervised
from headrace.spark.stream.foreach_batch import Halt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# How long a run that was asked twice may take to break its batches off and write down how it ended.
GRACE_SECONDS = 20.0
ASKS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """How often a run was asked to stop; safe to ask from any thread.

    start_plan: starts a process that plans a new start; None: the process of the run cannot begin again. held: orders
    that come before the first start. board: how the queries of the run stand. signalled: how often by a signal, also
    where the main thread hangs and has not come to ask.
    """

    def __init__(
        self, *, start_plan: Callable[[], subprocess.Popen[str]] | None = None, held: Sequence[Order] = ()
    ) -> None:
        self.board = Board()
        self._asked = 0
        self._lock = threading.Lock()
        self.start_plan, self.held = start_plan, held
        self.new_start: NewStart | None = None
        self.signalled = 0

    def ask(self) -> None:
        """Ask once more; if the run is to begin again, it ends instead."""
        with self._lock:
            self._asked += self.new_start is None
            self.new_start = None

    def ask_for(self, *, now: bool) -> None:
        """Ask for a stop now, or after the running batches; where it was asked for that already, nothing changes."""
        with self._lock:
            self._asked, self.new_start = max(self._asked, 2 if now else 1), None

    def begin_again(self, new_start: NewStart) -> None:
        """Ask for a stop after the running batches, and a new start; a run that is to end already does so."""
        with self._lock:
            if not self._asked:
                self._asked, self.new_start = 1, new_start

    @property
    def asked(self) -> int:
        """How often, as far as the main thread has come."""
        return self._asked

    @property
    def heard(self) -> int:
        """How often, also as far as only its signals have come."""
        return max(self._asked, self.signalled)

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

    before = {number: signal.signal(number, handler) for number in ASKS}
    try:
        with _watchdog(request, end_now):
            yield request
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def _watchdog(request: StopRequest, end_now: Callable[[int], None] | None) -> Iterator[None]:
    """Count the signals in a thread of its own, as the main thread may hang in a call into the JVM or a client.

    Python writes each signal's number to a socket from its handler in C, whatever the main thread does.
    """
    if end_now is None:
        yield
        return
    hears, signals = socket.socketpair()
    signals.setblocking(False)

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

    before = signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, name="stop", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        signals.close()


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


# Of a run that was asked to stop now, what its queries may take; what is left of the watchdog's time is for the result.
BREAK_OFF_SECONDS = 2.0
# When the rest of their threads must have ended, once they count as ended. The watchdog's time is four times as long.
SETTLED_SECONDS = 5.0


class Stopping:
    """Does what a request to stop asks for, step by step."""

    def __init__(self, spark: SparkSession, request: StopRequest, states: States, reporter: Observer) -> None:
        self._spark = spark
        self._request = request
        self._states = states
        self._reporter = reporter
        self._reported: bool | None = None
        self._now_at: float | None = None
        self._stops: dict[str, threading.Thread] = {}

    @property
    def waits_no_more(self) -> bool:
        """Whether the run was asked to stop now, and what has not stopped since hangs."""
        return self._now_at is not None and time.monotonic() - self._now_at > BREAK_OFF_SECONDS

    def settle(self) -> None:
        """Wait until the threads of the queries that were broken off have ended, but not for one that hangs.

        A query counts as ended before its thread has informed Spark. A session that is stopped in between makes that
        thread fail, and Java print its stack.
        """
        until = (self._now_at or time.monotonic()) + SETTLED_SECONDS
        for thread in self._stops.values():
            thread.join(max(0.0, until - time.monotonic()))

    def step(self, running: Iterable[QueryRun]) -> None:
        """Stop each query after its running batch, or now."""
        now = self._request.now
        if now and self._now_at is None:
            self._now_at = time.monotonic()
        if self._reported != now:
            self._reported = now
            self._reporter.stopping(now=now)
        for watched in running:
            self.one(watched, now=now)

    def one(self, watched: QueryRun, *, now: bool = False) -> None:
        """Stop one query after its running batch, or now.

        Continuous processing has no batch to end after: what its epoch wrote since the last report is written again.
        """
        watched.asked = True
        is_pause = watched.order is not None and watched.order.verb == "pause" and not self._request
        self._states.change(watched.query.name, "pausing" if is_pause else "stopping")
        if now:
            watched.halt = None  # It would wait for the batch.
            self._break_off(watched.running.handle)
        elif isinstance(watched.trigger, Continuous):
            watched.running.handle.stop()
        elif watched.halt is None:
            watched.halt = Halt(watched.running.handle, self._spark)

    def _break_off(self, handle: StreamingQuery) -> None:
        """Stop a query in a thread of its own: Spark waits for the batch, whose function may hang for ever."""
        run_id = str(handle.runId)
        before = self._stops.get(run_id)
        if before is None or not before.is_alive():  # Spark has given up, after spark.sql.streaming.stopTimeout.
            self._stops[run_id] = threading.Thread(target=_stop, args=(handle,), name="headrace-stop", daemon=True)
            self._stops[run_id].start()


def _stop(handle: StreamingQuery) -> None:
    with suppress(Exception):  # It is stopped again as long as it is active.
        handle.stop()


class OrderDesk:
    """Takes orders to the queries of a run.

    stopped: called with one that is not started any more. edited: says which files have changed since they were loaded.
    deploy: begins a deploy; False where that has to wait.
    An order to start is answered by `started` or `not_started`; one that brings new code, once that has worked.
    """

    def __init__(
        self,
        orders: Orders,
        watching: Watching,
        states: States,
        *,
        stopped: Callable[[Query], None],
        edited: Callable[[], str],
        deploy: Callable[[Order], bool],
    ) -> None:
        self._orders, self._watching, self._states, self._stopped = orders, watching, states, stopped
        self._edited, self._deploy = edited, deploy
        self._deferred: list[Order] = []

    def started(self, query: str, batch: int) -> None:
        """A query has started, with this batch next."""
        order, trial = self._take_order(query), self._states[query].trial
        if trial is not None:
            trial.batch = batch
        elif order is not None:
            order.succeed(
                "; ".join(filter(None, (f"query '{query}' runs again, from batch {batch:,} on", self._edited())))
            )

    def not_started(self, query: str, finding: Finding) -> None:
        if (order := self._take_order(query)) is not None:
            order.answer_failed(finding.reword(fix="; ".join(filter(None, (self._edited(), finding.fix)))))

    def take(self) -> None:
        """Carry out what was ordered; what is ordered of a query that is being started waits for that."""
        given, self._deferred = self._deferred, []
        while (taken := self._orders.take()) is not None:
            given.append(taken)
        for order in given:
            supervised = self._states.find(order.query)
            if order.deploy is not None:
                if not self._deploy(order):
                    self._deferred.append(order)
            elif supervised is None and order.project is not None:
                self._states.add(order.project, [order.project.queries[order.query]], order)
            elif supervised is None or (supervised.is_removed and order.project is None):
                order.answer_failed(_not_run(order.query))
            elif supervised.order is not None or supervised.state.state == "starting":
                self._deferred.append(order)
            else:
                if order.removes:
                    self._states.remove(order.query)
                if (watched := self._watching.find(order.query)) is not None:
                    _order_running(watched, order)
                else:
                    self._order_other(supervised, order)

    def close(self) -> None:
        """The run is over: answer all that was not carried out, and all that comes."""
        for order in (*self._deferred, *(state.order for state in self._states if state.order is not None)):
            order.answer_failed(application_ended(order.query))
        self._orders.close()

    def _take_order(self, query: str) -> Order | None:
        supervised = self._states[query]
        order, supervised.order = supervised.order, None
        return order

    def _order_other(self, supervised: Supervised, order: Order) -> None:
        """Carry out what is asked of a query that is paused, waits for its start or restart, or has ended."""
        name, state = order.query, supervised.state
        if order.project is not None and state.state in ("paused", "stopped", "finished"):
            self._states.declare_again(name, order.project)
            order.succeed(f"is {state.state}; its next start runs the new code")
        elif state.has_ended:
            self._order_ended(name, str(state.state), order)
        elif order.verb == "pause" and state.state == "paused":
            order.succeed(f"query '{name}' is already paused, since {state.since:%Y-%m-%d %H:%M:%S} UTC by {state.by}")
        elif order.verb == "pause":
            self._states.pause(name, order)
        elif order.verb == "stop":
            self._stopped(supervised.query)
            order.succeed(f"query '{name}' has stopped")
        else:
            self._states.start_again(name, order)

    def _order_ended(self, name: str, state: str, order: Order) -> None:
        if order.verb == "restart":
            self._states.start_again(name, order)
        elif order.verb == "stop":
            order.succeed(f"query '{name}' is not running: it {'is' if order.removes else 'has'} {state}")
        else:
            fault = f"query '{name}' cannot be {order.verb}d: it has {state}"
            order.answer_failed(Finding(code="HR850", what=fault, fix=f"start it again: headrace restart {name}"))


def _order_running(watched: QueryRun, order: Order) -> None:
    if order.verb == "resume":
        order.succeed(f"query '{order.query}' is running")
        return
    if watched.order is not None and watched.order.verb == order.verb:
        watched.order.answer.add_done_callback(lambda answer: order.answer.set_result(answer.result()))
        return
    if watched.order is not None:
        watched.order.answer_failed(_overtaken(watched.order, order))
    watched.order = order


def _overtaken(order: Order, by: Order) -> Finding:
    return Finding(
        code="HR851",
        what=f"the order to {order.verb} query '{order.query}' was overtaken by one to {by.verb} it"
        + (f", by {by.by}" if by.by else ""),
        fix="see how the query stands: headrace status",
    )


def _not_run(query: str) -> Finding:
    return Finding(
        code="HR850",
        what=f"process {os.getpid()} does not run query '{query}'",
        fix=f"start it in a process of its own: headrace run {query}",
    )
