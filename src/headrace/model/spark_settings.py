"""Settings of Spark and its master, as far as a mistake in them can be seen without a JVM."""

from __future__ import annotations

import difflib
import re

from headrace.units import size_bytes, spark_milliseconds

# Spark does not start with less: it keeps 300 MiB for itself, and asks for half as much again.
LEAST_MEMORY = 471_859_200


def _settings(names: str) -> tuple[str, ...]:
    return tuple(f"spark.{name}" for name in names.split())


# Settings that people write, by what they take. Source: Spark 4.2, "Configuration".
_OF_BYTES = _settings(
    """
    driver.memory driver.memoryOverhead driver.maxResultSize executor.memory executor.memoryOverhead
    executor.pyspark.memory python.worker.memory memory.offHeap.size kryoserializer.buffer.max
    sql.files.maxPartitionBytes
    """
)
_WHOLE = _settings(
    """
    driver.cores executor.cores executor.instances cores.max task.cpus task.maxFailures default.parallelism
    sql.shuffle.partitions driver.port ui.port blockManager.port sql.streaming.minBatchesToRetain
    dynamicAllocation.minExecutors dynamicAllocation.maxExecutors sql.execution.arrow.maxRecordsPerBatch
    """
)
_SWITCHES = _settings(
    """
    ui.enabled sql.adaptive.enabled sql.ansi.enabled sql.caseSensitive sql.streaming.metricsEnabled
    dynamicAllocation.enabled eventLog.enabled memory.offHeap.enabled speculation shuffle.service.enabled
    sql.execution.arrow.pyspark.enabled sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled
    """
)
_TIMES = _settings(
    """
    network.timeout executor.heartbeatInterval rpc.askTimeout locality.wait sql.broadcastTimeout
    sql.streaming.pollingDelay
    """
)
_WORDS = {
    "spark.sql.catalogImplementation": ("in-memory", "hive"),
    "spark.scheduler.mode": ("FAIR", "FIFO"),
    "spark.sql.streaming.multipleWatermarkPolicy": ("min", "max"),
}
_ANY_TEXT = _settings(
    """
    sql.session.timeZone app.name jars jars.packages driver.host driver.extraJavaOptions executor.extraJavaOptions
    driver.extraClassPath executor.extraClassPath local.dir eventLog.dir serializer submit.pyFiles sql.extensions
    sql.warehouse.dir sql.streaming.stateStore.providerClass
    """
)
KNOWN = (*_OF_BYTES, *_WHOLE, *_SWITCHES, *_TIMES, *_WORDS, *_ANY_TEXT)


def fault(key: str, value: str) -> tuple[str, str] | None:
    """What is wrong with one setting, as a sentence without its subject, and what to write; None: nothing is seen."""
    if not key.startswith("spark."):
        near = _near(f"spark.{key}") or _near(key)
        return "does not begin with spark.", f"write {near or f'spark.{key}, or spark.hadoop.{key} for Hadoop'}"
    if key == "spark.master":
        return "is the target's own: master", "write master: next to storage, below the target"
    if not value.strip() and key in (*_OF_BYTES, *_WHOLE, *_SWITCHES, *_TIMES):
        return "is empty", "write a value, or leave the setting out"
    if key in _OF_BYTES:
        size = size_bytes(value, default_unit="m")
        if size is None:
            return "takes a size, a whole number and its unit", "write for example 2g or 512m"
        if key == "spark.driver.memory" and size < LEAST_MEMORY:
            return "is less than the 450 MiB that Spark starts with", "write 1g or more"
    if key in _WHOLE:
        least = 0 if key.endswith((".port", "minExecutors")) else 1
        most = 65_535 if key.endswith(".port") else 2_147_483_647
        if not re.fullmatch(r"\d+", value.strip()) or not least <= int(value) <= most:
            reach = f"from {least} to {most}" if key.endswith(".port") else f"from {least}"
            return f"takes a whole number {reach}", f"write for example {4040 if key.endswith('.port') else 8}"
    if key in _SWITCHES and value.strip().lower() not in ("true", "false"):
        return "takes true or false", "write one of the two"
    if key in _TIMES and spark_milliseconds(value, default_unit="s") is None:
        return "takes a length of time", "write for example 120s"
    words = _WORDS.get(key)
    if words and value.strip().lower() not in {word.lower() for word in words}:
        return f"takes {' or '.join(words)}", "write one of the two"
    if key == "spark.sql.session.timeZone":
        return _zone_fault(value)
    return None


def _zone_fault(value: str) -> tuple[str, str] | None:
    from zoneinfo import ZoneInfo, available_timezones

    if re.fullmatch(r"(UTC|GMT|UT|Z)?([+-]\d{1,2}(:\d{2}){0,2})?", value.strip()) and value.strip():
        return None
    try:
        ZoneInfo(value)
    except Exception:  # a missing database of zones is not a fault of the user's
        if available_timezones():
            near = difflib.get_close_matches(value, available_timezones(), n=1)
            return "is not a time zone", f"write {near[0] if near else 'for example Europe/Berlin'}, UTC or +02:00"
    return None


def nearest_setting(key: str) -> str | None:
    """The known setting that `key` is nearly, or None; Spark takes any key, and passes over what it does not know."""
    if key in KNOWN or not key.startswith("spark."):
        return None
    return _near(key)


def _near(key: str) -> str | None:
    folded = {name.lower(): name for name in KNOWN}
    near = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=0.92)
    return folded[near[0]] if near else None
