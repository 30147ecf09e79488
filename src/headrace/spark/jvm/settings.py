"""Spark's settings as Headrace chooses them, each with its reason; a project may override every one.

Nothing of them is written into a file of Headrace's: what stands in the environment is given to the session alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

OBJECT_STORE_JARS = "s3"
# What writes a checkpoint's files there.
FILE_MANAGER_SOURCE = "ConditionalCheckpointFileManager.java"
CONDITIONAL_FILE_MANAGER = "headrace.ConditionalCheckpointFileManager"
OBJECT_STORE_PREFIX = "spark.hadoop.fs.s3a."
CONDITIONAL_CREATION = "create.conditional.enabled"
OBJECT_STORE_SETTINGS = {
    # Hadoop's own first, which take what the settings say; then that of the SDK, which looks where AWS's tools do.
    f"{OBJECT_STORE_PREFIX}aws.credentials.provider": (
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,"
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,"
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
    ),
    # A file that is to be the first is put under the condition that none is there.
    f"{OBJECT_STORE_PREFIX}{CONDITIONAL_CREATION}": "true",
    # The other one reads ahead, which gains nothing for small files and needs a further library.
    f"{OBJECT_STORE_PREFIX}input.stream.type": "classic",
    # A bucket's objects are on no worker; where Spark asks for it, it forgets their ETags.
    "spark.sql.sources.ignoreDataLocality": "true",
}
# Spark writes milliseconds by default, and an offset without the seconds that old ones of most zones have.
JSON_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# NULLs are written, and times are those of the session's zone.
WHOLE_JSON = {"ignoreNullFields": "false", **JSON_TIMES}
WHOLE_JSON_UTC = {**WHOLE_JSON, "timeZone": "UTC"}
# What a session is for: queries that go on, queries that take what is there and end, an answer over many rows, or a
# short command. The last two write nothing into the project's storage.
Purpose = Literal["stream", "backlog", "reading", "short"]
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BLOCK_CACHE = "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB"
# What the stores of one state may keep of their files in memory together, in MB; Spark gives each partition 8.
STATE_CACHE_MB, LEAST_CACHE_MB = 128, 8
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
UNFINISHED_REPARTITION = "spark.sql.streaming.checkUnfinishedRepartitionOnRestart"
LOCAL_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# How a checkpoint's files get their names beyond this machine, by the scheme. HDFS renames a file in one step, over one
# that is there if so asked: Spark's own choice. The one above asks first whether the file is there, and HDFS does not
# rename over it. S3 has no renaming: there Headrace's own puts a file once it is whole, by a conditional put where it
# is to be the first.
FILE_MANAGERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager",
    "s3a": CONDITIONAL_FILE_MANAGER,
}
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def object_store_settings(own: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a session takes from the environment, of which Hadoop's client reads less."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    # As AWS's tools for Python do; Hadoop's client takes another one where an endpoint has no region in its name.
    usual = "us-east-1" if endpoint or f"{OBJECT_STORE_PREFIX}endpoint" in own else None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or usual
    wanted = {f"{OBJECT_STORE_PREFIX}endpoint": endpoint, f"{OBJECT_STORE_PREFIX}endpoint.region": region}
    return {key: value for key, value in wanted.items() if value is not None and key not in own}


@dataclass(frozen=True)
class Setting:
    """One of Spark's settings, the value chosen for it, and why."""

    key: str
    value: str
    reason: str


# A setting of the whole session: the file source plans each batch with the session that it was made in.
LOCAL_LISTING = Setting(
    "spark.sql.sources.parallelPartitionDiscovery.threshold",
    "1000000",
    "above 32 new files Spark lists them by a job with a task for each: over 937 files a batch took 7.6 s, now 3.3 s",
)


def is_local(master: str) -> bool:
    """Whether `master` runs everything inside the driver's process."""
    return master == "local" or master.startswith("local[")


def default_master() -> str:
    """The master of a target that names none: `SPARK_MASTER`, or every core of this machine."""
    return os.environ.get("SPARK_MASTER", "local[*]")


def default_partitions() -> int:
    """How many state partitions a new checkpoint gets: one for each core of this machine."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return max(1, os.cpu_count() or 1)


def settings(*, master: str, purpose: Purpose) -> Iterator[Setting]:
    """The settings of a session, in the order of the documentation."""
    yield Setting(
        "spark.sql.shuffle.partitions",
        str(default_partitions()),
        "one state partition for each core instead of 200: a tiny stateful batch took 6.0 s with 200, 0.35 s with 2",
    )
    yield Setting(
        "spark.sql.streaming.stateStore.providerClass",
        ROCKSDB,
        "state outside the Java heap, so that it can outgrow memory; the only store whose partitions can be changed",
    )
    yield Setting(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "true",
        "a batch writes what it changed instead of a whole snapshot",
    )
    yield Setting(
        "spark.sql.streaming.queryEvolution.enableSourceEvolution",
        "true",
        "sources are known by name from the first batch, so that they can be added, dropped and reordered later",
    )
    yield Setting(
        "spark.sql.streaming.offsetLog.formatVersion",
        "2",
        "offsets are kept by the source's name, without which named sources cannot be reordered",
    )
    yield Setting(
        UNFINISHED_REPARTITION,
        "false",
        "with offsets kept by name, Spark 4.2 fails at every start after a crash when it looks for a repartitioning "
        "that was cut off (None.get)",
    )
    yield Setting("spark.sql.session.timeZone", "UTC", "one event has one hour on every machine")
    yield Setting(
        "spark.sql.execution.arrow.pyspark.enabled",
        "true",
        "rows pass between the JVM and Python in columns",
    )
    yield Setting(
        "spark.sql.adaptive.enabled",
        "true" if purpose in ("short", "reading") else "false",
        "Spark switches it off for stateful queries and warns each time; batch answers profit from it",
    )
    yield Setting(
        "spark.scheduler.mode",
        "FAIR",
        "many queries in one application share the cores instead of waiting for the one that came first; each batch "
        "has a pool of its own, the oldest first: of pools named after queries Spark prefers the first of the alphabet",
    )
    yield Setting("spark.sql.streaming.metricsEnabled", "true", "progress is in Spark's own metrics as well")
    for name in ("csv", "json"):
        yield Setting(
            f"spark.sql.{name}.filterPushdown.enabled",
            "false",
            "a row that a filter drops is read and counted like any other, and a bad one among them is seen",
        )
    if not is_local(master):
        yield Setting(
            "spark.shuffle.reduceLocality.enabled",
            "false",
            "Spark computes a state partition where its state was first, and those of a first batch that one task has "
            "read were all computed where that task ran: all state stayed on one executor",
        )
    if is_local(master):
        yield Setting(
            BLOCK_CACHE,
            str(max(LEAST_CACHE_MB, STATE_CACHE_MB // default_partitions())),
            f"{STATE_CACHE_MB} MB for each state, shared by its partitions, instead of 8 for each: with 1.4 million "
            "groups a batch of 20,000 rows took 0.70 s, now 0.59 s",
        )
        yield Setting(
            FILE_MANAGER,
            LOCAL_FILE_MANAGER,
            "the default forks a process for each small file of the checkpoint: a batch took 0.31 s, now 0.18 s",
        )
        yield Setting(
            "spark.driver.host",
            "127.0.0.1",
            "nothing outside this machine needs to reach a local session, and no name is looked up",
        )
        yield Setting("spark.driver.bindAddress", "127.0.0.1", "as above")
    yield Setting(
        "spark.python.sql.dataFrameDebugging.enabled",
        "false",
        "PySpark asks the JVM a dozen questions at each use of a column, to name its line in errors; that line is in "
        "Python's own trace",
    )
    yield Setting("spark.ui.showConsoleProgress", "false", "the live view shows progress; Spark's bar would tear it")
    yield Setting(
        "spark.ui.enabled",
        "false",
        "Spark's own pages cost a port and half a second of the start; switch them on in the project to look inside",
    )
