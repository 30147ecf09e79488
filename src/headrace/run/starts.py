"""Queries brought up one after another, in a thread beside that which watches those that run already."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import Finding
from headrace.model import Query, Trigger
from headrace.run.driver_lock import DriverLock
from headrace.run.start import Running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Begun: TypeAlias = tuple[Running | tuple[Finding, ...], bool]
"""A running query, or why it did not start, and whether it first finishes a batch that was begun before."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A query that is being started: the run in the history, and the last batch that earlier runs committed.

    lock: that no other process runs it, held until what was started holds it by itself.
    """

    query: Query
    trigger: Trigger
    history_run: int | None
    lock: DriverLock | None
    committed: int | None
    begun: Future[Begun]


class Starts:
    """One thread for all starts, in which Spark finds the session and the local properties of the caller's thread."""

    def __init__(self, spark: SparkSession, wake: Callable[[], None]) -> None:
        self._spark = spark
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-start")
        self._wake = wake

    def submit(self, start: Callable[[], Begun]) -> Future[Begun]:
        """Begin a start; `wake` is called when it has come to its end."""
        from pyspark.util import inheritable_thread_target

        def with_session() -> Begun:
            spark: Any = self._spark
            spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
            return start()

        future: Future[Begun] = self._pool.submit(inheritable_thread_target(self._spark)(with_session))
        future.add_done_callback(lambda _: self._wake())
        return future

    def close(self) -> None:
        """Wait for a start that has begun."""
        self._pool.shutdown()
