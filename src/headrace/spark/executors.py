"""The executors of a session that runs on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How many executors an application may have that sets no bound, as Spark's ApplicationInfo has it.
UNBOUNDED = 2**31 - 1
# What Spark calls the driver among the executors (SparkContext.DRIVER_IDENTIFIER).
DRIVER = "driver"


def executors(spark: SparkSession) -> frozenset[str]:
    """Where each executor listens; none of a local master, whose tasks the driver runs, or if Spark does not answer."""
    from py4j.protocol import Py4JError

    if (spark.sparkContext.master or "").startswith("local"):
        return frozenset()
    with suppress(Py4JError, OSError, AttributeError):
        return frozenset(listens for name, listens in block_managers(spark) if name != DRIVER)
    return frozenset()


def block_managers(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """The id of each living executor and where it listens, the driver's among them.

    Source: AppStatusStore.executorList, which Spark keeps with or without its UI.
    """
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True).iterator()
    while found.hasNext():
        each = found.next()
        yield str(each.id()), str(each.hostPort())


def has_work(spark: SparkSession) -> bool:
    """Whether tasks run or wait for an executor; not in a session that has ended."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError, AttributeError):
        return bool(spark.sparkContext.statusTracker().getActiveStageIds())
    return False


def is_forgotten(spark: SparkSession) -> bool:
    """Whether no master of a standalone cluster that can be reached knows the application.

    A master gives an application up when its own connection to the driver breaks, as one that was restarted has, and
    does not tell the driver; Spark then waits for executors without an end. The master is asked for as many executors
    as the session has asked for. Waits for the answer, up to `spark.rpc.askTimeout`.

    Source: SparkContext.requestTotalExecutors; Master.handleRequestExecutors and Master.onDisconnected.
    """
    from py4j.protocol import Py4JJavaError

    if not (spark.sparkContext.master or "").startswith("spark://"):
        return False
    # Dynamic allocation says anew what it wants as soon as that changes.
    bounded = spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    context: Any = spark.sparkContext._jsc.sc()
    nowhere = spark.sparkContext._jvm.PythonUtils.toScalaMap({})  # type: ignore[union-attr]
    try:
        return not context.requestTotalExecutors(1 if bounded else UNBOUNDED, 0, nowhere)
    except Py4JJavaError:
        # The connection by which the driver knows the master is closed. A session that has ended tells so by itself.
        return not context.isStopped()
