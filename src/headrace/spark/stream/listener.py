"""Spark's streaming events as JSON in a queue, and fair shares of the cores among a run's queries.

Spark's fair scheduler gives a free core to the pool with the fewest running tasks; of pools with equally many, to the
one whose name is smaller (FairSchedulingAlgorithm of Spark 4.2). With one pool for each query the same queries win
every such tie, and on few cores the others wait until those are done: of 12 equal queries on two cores the last one
wrote its first batch when most others had ended. So a batch's pool has the number of the batch in its name, counted
over all queries: the oldest batch wins the tie, and a query that has just had its turn comes last.

Spark's status store keeps every name of a pool as long as the session lasts (AppStatusListener), 130 bytes a batch. So
numbers come again after `NUMBERS` batches, but for those in use; then a newer batch wins the ties of a few older ones.

A query's thread reads the name of its pool from its own local properties at each job. They are at hand in the call that
reports the query's start, which Spark makes in that very thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.jvm.gateway import gateway_with_callbacks, java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = "spark.scheduler.pool"
# After Spark's pool "default" in the alphabet: jobs outside of batches are few and small, and need not wait for them.
PREFIX = "turn "
# What a job of the last batch may still use is left alone; older pools are taken away, some at a time.
KEPT, SWEPT_AT = 2, 16
NUMBERS = 10_000
# Spark takes a finished set of tasks out of its pool a moment after it has reported the end of the job.
MOMENT_SECONDS, LOOKS = 0.02, 25


@dataclass(frozen=True)
class ListenerEvent:
    """One event of Spark's StreamingQueryListener, or a call to look around; `json` is the progress, if any."""

    kind: Literal["started", "progress", "idle", "terminated", "wake"]
    run_id: str = ""
    json: str = ""


class Listener:
    """Puts the events of every streaming query of a session into `events`, until closed, and gives batches their turns.

    PySpark's own listener turns each progress into Python objects by some hundred calls into the JVM; this one asks
    for its JSON by one (org.apache.spark.sql.streaming.PythonStreamingQueryListener).
    """

    def __init__(self, spark: SparkSession) -> None:
        from py4j.java_gateway import java_import

        self.events: queue.SimpleQueue[ListenerEvent] = queue.SimpleQueue()
        gateway = gateway_with_callbacks(spark)
        java_import(gateway.jvm, "org.apache.spark.sql.streaming.*")
        self._manager = spark.streams._jsqm
        self._turns = Turns(spark)
        self._wrapped = gateway.jvm.PythonStreamingQueryListenerWrapper(_JavaListener(self.events, self._turns))
        self._manager.addListener(self._wrapped)

    def wake(self) -> None:
        """Wake the thread that waits for an event."""
        self.events.put(ListenerEvent("wake"))

    def close(self) -> None:
        self._manager.removeListener(self._wrapped)
        self._turns.close()


class _JavaListener:
    def __init__(self, events: queue.SimpleQueue[ListenerEvent], turns: Turns) -> None:
        self.events = events
        self.turns = turns

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        run_id = str(event.runId().toString())
        self.turns.begin(run_id, event.name())
        self.events.put(ListenerEvent("started", run_id))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress()
        run_id = str(progress.runId().toString())
        # First, so that a fault of the pools loses no batch.
        self.events.put(ListenerEvent("progress", run_id, str(progress.json())))
        self.turns.next(run_id)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self.events.put(ListenerEvent("idle", str(event.runId().toString())))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        run_id = str(event.runId().toString())
        self.events.put(ListenerEvent("terminated", run_id))
        self.turns.end(run_id)

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


@dataclass(kw_only=True)
class _Turn:
    """One run of a query: its thread's properties, and the pools of its batches that are still there."""

    query: str
    properties: Any
    pools: deque[int] = field(default_factory=deque)


class _Numbers:
    """The numbers in the names of pools, for all runs of this process: two may share a session."""

    def __init__(self) -> None:
        self._counted, self._used, self._lock = count(), set[int](), threading.Lock()

    def take(self) -> int:
        """The next one that is not in use."""
        with self._lock:
            number = next(self._counted) % NUMBERS
            while number in self._used and len(self._used) < NUMBERS:
                number = next(self._counted) % NUMBERS
            self._used.add(number)
        return number

    def give_back(self, number: int) -> None:
        """Its pool is gone."""
        with self._lock:
            self._used.discard(number)


_NUMBERS = _Numbers()


class Turns:
    """Gives the batches of each query their pools; does nothing where the user has chosen pools."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._context = java_context(spark)
        fair = (context.getConf().get("spark.scheduler.mode") or "FIFO").upper() == "FAIR"
        self._active = fair and context.getLocalProperty(POOL) is None
        self._turns: dict[str, _Turn] = {}
        self._lock, self._sweeping = threading.Lock(), threading.Lock()

    def begin(self, run_id: str, query: str | None) -> None:
        """Take up a query; to be called in its own thread, as Spark calls a listener when a query starts."""
        if not self._active:
            return
        properties = self._context.getLocalProperties()
        if properties.getProperty("spark.jobGroup.id") != run_id:
            return  # PYSPARK_PIN_THREAD=false: this is another thread of the JVM
        name = query or run_id
        if self._context.getPoolForName(name).isDefined():
            properties.setProperty(POOL, name)  # of the user's own allocation file
            return
        turn = _Turn(query=name, properties=properties)
        with self._lock:
            self._turns[run_id] = turn
        self._next(turn)

    def next(self, run_id: str) -> None:
        """A batch of the query has ended: the next one comes after those that wait."""
        turn = self._turns.get(run_id)
        if turn is not None:
            self._next(turn)
            if len(turn.pools) >= SWEPT_AT:
                with self._sweeping:
                    self._sweep(turn, KEPT)

    def end(self, run_id: str) -> None:
        with self._sweeping:
            with self._lock:
                turn = self._turns.pop(run_id, None)
            if turn is None:
                return
            for _ in range(LOOKS):
                self._sweep(turn, 0)
                if not turn.pools:
                    return
                time.sleep(MOMENT_SECONDS)

    def close(self) -> None:
        """Remove all pools that are left: Spark may not have reported the end of the last query yet."""
        for run_id in tuple(self._turns):
            self.end(run_id)
        with self._sweeping:
            pass  # an end that the listener's thread has begun

    def _next(self, turn: _Turn) -> None:
        number = _NUMBERS.take()
        turn.pools.append(number)
        turn.properties.setProperty(POOL, _name(number))

    def _sweep(self, turn: _Turn, kept: int) -> None:
        """Take away the pools of batches that have ended; one in which a task still runs stays for later."""
        busy = []
        for _ in range(len(turn.pools) - kept):
            number = turn.pools.popleft()
            pool_option = self._context.getPoolForName(_name(number))
            if pool_option.isDefined():
                pool = pool_option.get()
                if not pool.schedulableQueue().isEmpty():
                    busy.append(number)
                    continue
                pool.parent().removeSchedulable(pool)
            _NUMBERS.give_back(number)
        turn.pools.extendleft(reversed(busy))


def _name(number: int) -> str:
    return f"{PREFIX}{number:0{len(str(NUMBERS - 1))}d}"
