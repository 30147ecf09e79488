"""Settings of a session that hold for a while only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.spark import settings as chosen
from headrace.units import spark_milliseconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BETWEEN = "\x1f"
# How long Spark waits for executors before it begins with fewer, and we before we say that none comes.
WAITING_TIME = "spark.scheduler.maxRegisteredResourcesWaitingTime"


@contextmanager
def applied(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let the session have `settings` inside; a query that is started there keeps them."""
    with restored(spark, settings):
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield


@contextmanager
def restored(spark: SparkSession, keys: Collection[str]) -> Iterator[None]:
    """Give the session back the settings `keys` as they were before."""
    before = {key: spark.conf.get(key, None) for key in keys}
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def all_settings(spark: SparkSession) -> dict[str, str]:
    """Every setting of the session, by one call: the map that PySpark gives costs one for each of its entries."""
    text = str(spark._jsparkSession.conf().getAll().mkString(_BETWEEN))
    pairs = (each.partition(" -> ") for each in text.split(_BETWEEN))
    return {key: value for key, arrow, value in pairs if arrow}


def executor_memory(spark: SparkSession) -> int:
    """The bytes of heap of one executor; of a local Spark those of its driver, which is the executor as well."""
    context = spark.sparkContext
    jvm: Any = context._jvm
    if str(context.master).startswith("local"):
        return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    declared = context.getConf().get("spark.executor.memory", "1g")
    return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(declared))


def is_cluster(spark: SparkSession) -> bool:
    """Whether a session has executors beside its driver."""
    return not str(spark.sparkContext.master).startswith("local")


def default_partitions(spark: SparkSession) -> int:
    """How many state partitions a new checkpoint gets: one for each core, of this machine or of the cluster."""
    return int(spark.sparkContext.defaultParallelism) if is_cluster(spark) else chosen.default_partitions()


def is_stopped(spark: SparkSession) -> bool:
    """Whether Spark has ended the session's context by itself."""
    context: Any = spark.sparkContext._jsc.sc()
    return bool(context.isStopped())


def executors(spark: SparkSession) -> int:
    """How many executors a session has beside its driver."""
    context: Any = spark.sparkContext._jsc.sc()
    return int(context.getExecutorMemoryStatus().size()) - 1


def executor_patience(spark: SparkSession) -> float:
    """How many seconds are waited for an executor before it is said that none comes."""
    given = str(spark.sparkContext.getConf().get(WAITING_TIME, "30s"))
    return (spark_milliseconds(given, default_unit="ms") or 0) / 1000
