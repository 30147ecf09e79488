"""What a session has for a while only: settings, a copy made active, a thread, the query that its tasks serve."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from headrace.spark.jvm import settings as chosen
from headrace.spark.jvm.gateway import java_context, java_session, jvm_of
from headrace.units import spark_milliseconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")
_BETWEEN = "\x1f"
# How long Spark waits for executors before it begins with fewer, and we before we say that none comes.
WAITING_TIME = "spark.scheduler.maxRegisteredResourcesWaitingTime"
# Of those that begin with "mdc.", Spark gives to the log too; see log4j2.properties.
QUERY = "mdc.headrace.query"


@contextmanager
def apply_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let the session have `settings` inside; a query that is started there keeps them."""
    with restore_settings(spark, settings):
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield


@contextmanager
def restore_settings(spark: SparkSession, keys: Collection[str]) -> Iterator[None]:
    """Give the session back the settings `keys` as they were before."""
    before = {key: spark.conf.get(key, None) for key in keys}
    try:
        yield
    finally:
        _restore(spark, before)


def _restore(spark: SparkSession, before: Mapping[str, str | None]) -> None:
    for key, old in before.items():
        if old is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, old)


# One thread at a time changes a setting of the session that others do not have in common with it.
ONE_AT_A_TIME = threading.RLock()
_sharing = threading.Condition()
_inside: list[object] = []
# What the settings were before the first came in. No context manager is kept here: that of a start which hangs would be
# closed while Python ends.
_before: dict[str, str | None] = {}


@contextmanager
def share_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """As `apply_settings`, for several threads at once; one that needs other settings waits for those inside."""
    wanted = (str(java_session(spark).hashCode()), frozenset(settings.items()))
    with _sharing:
        _sharing.wait_for(lambda: all(inside == wanted for inside in _inside))
        if not _inside:
            _before.update({key: spark.conf.get(key, None) for key in settings})
            for key, value in settings.items():
                spark.conf.set(key, value)
        _inside.append(wanted)
    try:
        yield
    finally:
        with _sharing:
            _inside.pop()
            if not _inside:
                before = dict(_before)
                _before.clear()
                _sharing.notify_all()
                _restore(spark, before)


def modifiable_settings(spark: SparkSession, settings: Mapping[str, str]) -> dict[str, str]:
    """Those of `settings` that a session which runs already can take."""
    return {key: value for key, value in settings.items() if spark.conf.isModifiable(key)}


def all_settings(spark: SparkSession) -> dict[str, str]:
    """Every setting of the session, by one call: the map that PySpark gives costs one for each of its entries."""
    text = str(java_session(spark).conf().getAll().mkString(_BETWEEN))
    pairs = (pair.partition(" -> ") for pair in text.split(_BETWEEN))
    return {key: value for key, arrow, value in pairs if arrow}


def executor_memory(spark: SparkSession) -> int:
    """The bytes of heap of one executor; of a local Spark those of its driver, which is the executor as well."""
    context, jvm = spark.sparkContext, jvm_of(spark)
    if str(context.master).startswith("local"):
        return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    declared = context.getConf().get("spark.executor.memory", "1g")
    return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(declared))


def is_cluster(spark: SparkSession) -> bool:
    """Return whether a session has executors of its own, apart from its driver."""
    return not str(spark.sparkContext.master).startswith("local")


def default_partitions(spark: SparkSession) -> int:
    """How many state partitions a new checkpoint gets: one for each core, of this machine or of the cluster."""
    return int(spark.sparkContext.defaultParallelism) if is_cluster(spark) else chosen.default_partitions()


def is_stopped(spark: SparkSession) -> bool:
    """Whether Spark has ended the session's context by itself."""
    return bool(java_context(spark).isStopped())


def executors(spark: SparkSession) -> int:
    """Return how many executors a session has, without its driver."""
    return int(java_context(spark).getExecutorMemoryStatus().size()) - 1


def executor_patience(spark: SparkSession) -> float:
    """How many seconds are waited for an executor before it is said that none comes."""
    given = str(spark.sparkContext.getConf().get(WAITING_TIME, "30s"))
    return (spark_milliseconds(given, default_unit="ms") or 0) / 1000


@contextmanager
def borrow(spark: SparkSession | None, begin: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """A session to read with, in which settings and temporary views may be changed.

    It is a copy of `spark`, or else of the session that is active, and the original keeps its own settings and views.
    Where there is none, `begin` starts one, which is stopped again.
    """
    from pyspark.sql import SparkSession

    lender = spark or SparkSession.getActiveSession() or _default()
    if lender is None:
        own = begin()
        try:
            yield own
        finally:
            own.stop()
        return
    sessions = jvm_of(lender).org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    copy = SparkSession(lender.sparkContext, java_session(lender).cloneSession())
    # What the user's function asks for as the active session is the copy too. PySpark remembers one of its own, which
    # every createDataFrame sets.
    remembered = SparkSession._activeSession
    sessions.setActiveSession(java_session(copy))
    SparkSession._activeSession = copy
    try:
        yield copy
    finally:
        SparkSession._activeSession = remembered
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


# Behind Spark's own pool and those of the batches in the alphabet, by which Spark chooses between equals.
_LAST_POOL = "verify"
_LAST_GROUP = "headrace verify"


def use_low_priority_pool() -> SparkSession | None:
    """The session that runs; the jobs of this thread leave its cores to batches, and can be broken off."""
    spark = _default()
    if spark is not None:
        spark.sparkContext.setJobGroup(_LAST_GROUP, _LAST_GROUP, interruptOnCancel=True)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", _LAST_POOL)
    return spark


def cancel_low_priority_jobs() -> None:
    """Cancel the jobs of the thread that has taken the last turn."""
    spark = _default()
    if spark is not None:
        spark.sparkContext.cancelJobGroup(_LAST_GROUP)


def activate(spark: SparkSession) -> None:
    """Let `spark` be the active session of the thread of the JVM that serves this one."""
    jvm_of(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(java_session(spark))


def in_thread(
    spark: SparkSession, work: Callable[[], _Result], ended: Callable[[], None], *, name: str
) -> Future[_Result]:
    """Begin work in a thread with the session and the local properties of this one; `ended` is called at its end."""
    from pyspark.util import inheritable_thread_target

    def with_session() -> _Result:
        activate(spark)
        return work()

    future: Future[_Result] = Future()
    future.add_done_callback(lambda _: ended())
    target = inheritable_thread_target(spark)(with_session)

    def run() -> None:
        try:
            future.set_result(target())
        except BaseException as error:
            future.set_exception(error)

    # No thread that the process waits for at its end: it may hang in a client that waits for a lock.
    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _default() -> SparkSession | None:
    """The session that another thread has started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return None if SparkContext._active_spark_context is None else SparkSession._instantiatedSession


@contextmanager
def name_query(spark: SparkSession, query: str) -> Iterator[None]:
    """Let a query that is started in this block have its name: its thread inherits the properties of this one."""
    context = spark.sparkContext
    before = context.getLocalProperty(QUERY)
    context.setLocalProperty(QUERY, query)
    try:
        yield
    finally:
        context.setLocalProperty(QUERY, before)  # type: ignore[arg-type]
