"""A running query brought to a halt between two batches, so that none is broken off and made again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LONGEST_SECONDS = 5.0


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
            runtime = self._spark._jvm.org.apache.spark.sql.execution.streaming.runtime  # type: ignore[union-attr]
            self._execution.state().set(getattr(getattr(runtime, "TERMINATED$"), "MODULE$"))
            self._is_reported = True
        return False

    def _at_work(self) -> bool:
        """Whether a job of the query's batch runs."""
        tracker = self._spark.sparkContext.statusTracker()
        mine = set(tracker.getJobIdsForGroup(str(self._handle.runId)))
        return not mine.isdisjoint(tracker.getActiveJobsIds())
