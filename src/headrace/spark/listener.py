"""Spark's streaming events, passed as JSON into a queue."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.scheduler_pools import Turns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Event:
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
        from pyspark.java_gateway import ensure_callback_server_started

        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        gateway = spark.sparkContext._gateway
        assert gateway is not None, "a session of this process has a gateway"
        java_import(gateway.jvm, "org.apache.spark.sql.streaming.*")
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._manager = spark.streams._jsqm
        self._turns = Turns(spark)
        self._wrapped = gateway.jvm.PythonStreamingQueryListenerWrapper(_JavaListener(self.events, self._turns))
        self._manager.addListener(self._wrapped)

    def wake(self) -> None:
        """Let whoever waits for an event look around."""
        self.events.put(Event("wake"))

    def close(self) -> None:
        """Stop listening."""
        self._manager.removeListener(self._wrapped)
        self._turns.close()


class _JavaListener:
    def __init__(self, events: queue.SimpleQueue[Event], turns: Turns) -> None:
        self.events = events
        self.turns = turns

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        run_id = str(event.runId().toString())
        self.turns.begin(run_id, event.name())
        self.events.put(Event("started", run_id))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress()
        run_id = str(progress.runId().toString())
        # First, so that a fault of the pools loses no batch.
        self.events.put(Event("progress", run_id, str(progress.json())))
        self.turns.next(run_id)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self.events.put(Event("idle", str(event.runId().toString())))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        run_id = str(event.runId().toString())
        self.events.put(Event("terminated", run_id))
        self.turns.end(run_id)

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
