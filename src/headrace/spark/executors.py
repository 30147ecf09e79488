"""The executors of a session that runs on a cluster."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def executors(spark: SparkSession) -> frozenset[str]:
    """Where each executor listens; none of a local master, whose tasks run in the driver, or if Spark does not answer.

    Source: SparkContext.getExecutorMemoryStatus, whose keys are the block managers of the executors and the driver.
    """
    from py4j.protocol import Py4JError

    if (spark.sparkContext.master or "").startswith("local"):
        return frozenset()
    with suppress(Py4JError, OSError, AttributeError):
        driver, all_of_them = block_managers(spark)
        return all_of_them - {driver}
    return frozenset()


def block_managers(spark: SparkSession) -> tuple[str, frozenset[str]]:
    """Where the driver's block manager listens, and where all do, the driver's among them."""
    context = spark.sparkContext._jsc.sc()
    keys = context.getExecutorMemoryStatus().keysIterator()
    found = set()
    while keys.hasNext():
        found.add(str(keys.next()))
    return str(context.env().blockManager().blockManagerId().hostPort()), frozenset(found)
