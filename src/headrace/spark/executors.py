"""The executors of a session that runs on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
