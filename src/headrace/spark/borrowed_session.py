"""Which session is the active one, and a copy of a session that is given back as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def borrowed(spark: SparkSession | None, begin: Callable[[], SparkSession]) -> Iterator[SparkSession]:
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
    jvm = lender._jvm
    assert jvm is not None, "a session without a JVM cannot be copied"
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    copy = SparkSession(lender.sparkContext, lender._jsparkSession.cloneSession())
    # What the user's function asks for as the active session is the copy too. PySpark remembers one of its own, which
    # every createDataFrame sets.
    remembered = SparkSession._activeSession
    sessions.setActiveSession(copy._jsparkSession)
    SparkSession._activeSession = copy
    try:
        yield copy
    finally:
        SparkSession._activeSession = remembered
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def activate(spark: SparkSession) -> None:
    """Let `spark` be the active session of the thread of the JVM that serves this one."""
    session: Any = spark
    session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


def _default() -> SparkSession | None:
    """The session that another thread has started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return None if SparkContext._active_spark_context is None else SparkSession._instantiatedSession
