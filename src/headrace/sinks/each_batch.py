"""What is called for each batch, so that Spark can read how a call ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# How a call into the JVM ends when Spark breaks the batch off, because the query is being stopped.
_BROKEN_OFF = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
    "was stopped",  # "Job 4 cancelled Query counts [id = ..., runId = ...] was stopped"
)


class BrokenOff(Exception):
    """The query is being stopped in the middle of a batch. Spark knows it by this text, which names no more."""

    def __init__(self) -> None:
        super().__init__("py4j.protocol.Py4JJavaError: An error occurred while calling: java.lang.InterruptedException")


def for_each_batch(writer: DataStreamWriter, take: Callable[[DataFrame, int], None]) -> DataStreamWriter:
    """Let `take` have each batch.

    Spark looks through the text of an exception for the sign of a stop, with a regular expression that takes so much
    of the thread's stack for a text as long as that of Python and the JVM together that the thread dies of it, and
    prints a thousand lines. So a batch that was broken off ends with a short text here. Source: PROXY_ERROR in Spark's
    StreamExecution.
    """

    def called(frame: DataFrame, batch: int) -> None:
        try:
            take(frame, batch)
        except Exception as fault:
            if type(fault).__module__.split(".")[0] in {"pyspark", "py4j"} and _is_broken_off(fault):
                raise BrokenOff from None
            raise

    return writer.foreachBatch(called)


def _is_broken_off(fault: Exception) -> bool:
    said = str(fault)
    return any(sign in said for sign in _BROKEN_OFF)
