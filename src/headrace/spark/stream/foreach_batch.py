"""The edges of a batch: what is called for it, so that Spark can read how the call ended, and a stop after it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.contract import Writer
from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.messages.refusals import is_from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Take = TypeVar("Take", bound="Callable[[DataFrame, int], None]")
# How a call into the JVM ends when Spark breaks the batch off, because the query is being stopped: its job is
# cancelled, or the thread is interrupted. A client of another system can be interrupted by a timeout too.
_CANCELLED = re.compile(r"\[SPARK_JOB_CANCELLED\] Job \d+ cancelled Query .* was stopped")
_INTERRUPTED = re.compile(
    r"java\.(?:lang\.InterruptedException|io\.InterruptedIOException|nio\.channels\.ClosedByInterruptException).*"
)
_LONGEST = 300
LONGEST_SECONDS = 5.0


class BrokenOff(Exception):
    """A batch did not come to its end; Spark knows by this text whether that is the query's stop."""

    def __init__(self, why: str) -> None:
        super().__init__(f"py4j.protocol.Py4JJavaError: An error occurred while calling: {why[:_LONGEST]}")


class ForEachBatch(Writer, Generic[Take]):
    """A writer that gives each batch, with its number, to `take`."""

    def __init__(self, take: Take) -> None:
        self.take = take

    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        return for_each_batch(stream_writer, self.take)


def for_each_batch(writer: DataStreamWriter, take: Callable[[DataFrame, int], None]) -> DataStreamWriter:
    """Let `take` have each batch.

    Spark looks through the text of an exception for the sign of a stop, with a regular expression that takes so much
    of the thread's stack for a text as long as that of Python and the JVM together that the thread dies of it, and
    prints a thousand lines. So a batch that was broken off ends with a short text here. Source: PROXY_ERROR in Spark's
    StreamExecution.
    """

    def take_batch(frame: DataFrame, batch: int) -> None:
        try:
            take(frame, batch)
        except Exception as error:
            why = _interruption(error)
            if why is None:
                raise
            raise BrokenOff(why) from None

    return writer.foreachBatch(take_batch)


def compute_all(frame: DataFrame) -> None:
    """Compute every partition of `frame` and keep none of its rows."""
    frame.write.format("noop").mode("overwrite").save()


def _interruption(error: Exception) -> str | None:
    """What interrupted the call that ended with `error`, in the words that Spark looks for; None: nothing."""
    if not is_from_spark(error):
        return None
    message = str(error)
    if _CANCELLED.search(message):
        return "java.lang.InterruptedException"
    match = _INTERRUPTED.search(message)
    return match.group() if match else None


class Halt:
    """Brings one query to a halt, step by step, without ever waiting.

    Spark's `stop` interrupts the running batch. But a query whose state says that it is terminated ends by itself after
    its batch, which is how the trigger available-now ends. Between planning a batch and handing it to the sink Spark
    looks at the state too, and breaks the batch off; so it is set while nothing continues, or while a job of the batch
    runs. Where neither was seen for a while, or Spark is too quick, the batch is broken off before its rows were
    written, and has to be made again.

    Source: MicroBatchExecution (executeOneBatch, runBatch) of Spark 4.2.
    """

    def __init__(self, handle: StreamingQuery, spark: SparkSession) -> None:
        self._handle = handle
        self._spark = spark
        self._execution: Any = handle._jsq.streamingQuery()
        self._until = time.monotonic() + LONGEST_SECONDS
        self._is_reported = False

    def step(self) -> bool:
        """Continue; True once the query has ended."""
        if not self._execution.queryExecutionThread().isAlive():
            return True
        idle = not self._handle.status["isTriggerActive"]
        if self._is_reported and idle:
            self._handle.stop()  # it waits for its next trigger
            return True
        if not self._is_reported and (idle or self._at_work() or time.monotonic() > self._until):
            runtime = jvm_of(self._spark).org.apache.spark.sql.execution.streaming.runtime
            self._execution.state().set(getattr(getattr(runtime, "TERMINATED$"), "MODULE$"))
            self._is_reported = True
        return False

    def _at_work(self) -> bool:
        """Whether a job of the query's batch runs."""
        tracker = self._spark.sparkContext.statusTracker()
        mine = set(tracker.getJobIdsForGroup(str(self._handle.runId)))
        return not mine.isdisjoint(tracker.getActiveJobsIds())
