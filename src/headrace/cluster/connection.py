"""What a driver needs to work on a standalone cluster: the secret, an address, executors, and Headrace's code."""

from __future__ import annotations

import atexit
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cluster.daemons import Cluster, default_home, executors_of, last_message, read
from headrace.errors import Finding, HeadraceError, PlatformError
from headrace.spark.jvm import cds
from headrace.spark.jvm.hadoop_files import escape_pattern
from headrace.spark.jvm.preconditions import master_hosts, require_java
from headrace.spark.jvm.session_conf import WAITING_TIME, executor_patience, executors, is_stopped
from headrace.spark.messages.refusals import is_from_spark
from headrace.storage.durable import replace_file
from headrace.storage.location import is_remote
from headrace.storage.private import writing_to
from headrace.units import ip_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# More often than so for each core an executor is started only where none of them stays.
_TIMES = 4
# Executors that were granted together come up within so long of each other.
_SETTLED_SECONDS = 5.0
_CLUSTERS = ("spark://", "yarn", "k8s://")
# What every worker needs to take rows from Spark.
COMMON = ("pyarrow",)
_OTHER_PYTHON = re.compile(r"Python in worker has different version: (?P<worker>[\d.]+) than that in driver: ([\d.]+)")
_NO_PYTHON = re.compile(r'Cannot run program "(?P<program>[^"]+)"')
_CHOOSE = "or name one that has, by PYSPARK_PYTHON or spark.pyspark.python"
_REASON = re.compile(r"(?<![\w.])(?:\w+\.)+(\w*(?:Exception|Error)): ?(.+)")


def is_loopback(master: str) -> bool:
    """Whether a standalone cluster can be reached from this machine alone, so that all of it is here."""
    hosts = [host for host, _ in master_hosts(master)]
    return bool(hosts) and all(map(_is_loopback, hosts))


def is_elsewhere(master: str) -> bool:
    """Whether executors may run on other machines than the driver's; the start refuses other masters."""
    return master.startswith(_CLUSTERS) and not is_loopback(master)


def settings(master: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a session for `master` needs besides its `own`: the secret of a cluster started here."""
    cluster = _local_cluster(master)
    if cluster is None:
        return {}
    values = {"spark.authenticate": "true", "spark.authenticate.secret": cluster.secret}
    values |= {"spark.driver.host": cluster.host, "spark.driver.bindAddress": cluster.host}
    return {key: value for key, value in values.items() if key not in own}


def archive_settings(master: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by which executors of a cluster that was started here map the CDS archive."""
    if _local_cluster(master) is None:
        return {}
    return cds.executor_settings(require_java(), own)


def use_this_python(master: str) -> None:
    """Let executors on this machine run the Python that the driver runs."""
    if is_loopback(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def make_ready(
    spark: SparkSession,
    master: str,
    packages: Collection[str],
    storage: Path | None = None,
    *,
    begin: Callable[[str], None],
) -> None:
    """Wait for the executors, and send the workers Headrace's own code; they have to have `packages`.

    storage: what they have to reach. begin: called with each step as it begins. Raises PlatformError if no executor
    comes (Spark would wait for ever, with a warning in its log), or if a worker's Python cannot run what it is sent, or
    does not see the storage.
    """
    if not master_hosts(master):
        return
    begin(f"waiting for the executors of {master}")
    _require_executors(spark, master)
    _await_others(spark, master)
    begin("looking whether its workers can run the project")
    spark.sparkContext.addPyFile(str(_code()))
    try:
        require_workers(spark, packages)
        # A directory of this machine is seen by all that is on it.
        if storage is not None and (is_remote(storage) or not is_loopback(master)):
            begin(f"looking whether its workers reach the storage {storage}")
            require_storage(spark, storage)
    except PlatformError:
        spark.stop()
        raise


def _require_executors(spark: SparkSession, master: str) -> None:
    """Wait for an executor, as long as there is progress: a busy machine takes minutes for a JVM that it has begun."""
    conf = spark.sparkContext.getConf()
    patience = executor_patience(spark)
    begun, since = _started_executors(spark, master), time.monotonic()
    while not _has_executor(spark, master):
        if (now := _started_executors(spark, master)) != begun:
            begun, since = now, time.monotonic()
        if time.monotonic() - since > patience:
            wanted = f"{conf.get('spark.executor.cores', 'all')} cores and {conf.get('spark.executor.memory', '1g')}"
            spark.stop()
            raise PlatformError(
                code="HR825",
                what=f"the cluster {master} has given no executor for {patience:g} s: "
                + (
                    f"{len(begun)} were begun and have not come up"
                    if begun
                    else f"no worker has {wanted} of memory free"
                ),
                fix="stop an application, or bound it by spark.cores.max; ask for less by spark.executor.memory "
                "and spark.executor.cores; headrace cluster status, or the master's page, shows what is free; wait "
                f"longer by {WAITING_TIME}",
            )
        time.sleep(0.1)


def _await_others(spark: SparkSession, master: str) -> None:
    """Wait until the other executors are there too, or none has come for a while.

    A new checkpoint gets a state partition for each core that is there, and Spark computes a partition where its state
    was first: what comes after the first batch would have no state to work on.
    """
    conf = spark.sparkContext.getConf()
    cores, of_executor = (int(conf.get(f"spark.{name}", "0")) for name in ("cores.max", "executor.cores"))
    seen, since = (_executors(spark, master), _started_executors(spark, master)), time.monotonic()
    while time.monotonic() - since < _SETTLED_SECONDS and _has_executor(spark, master):
        there, begun = seen
        wanted = len(begun) or (cores // of_executor if of_executor else 0)
        if wanted and there >= wanted:
            return
        time.sleep(0.1)
        if (now := (_executors(spark, master), _started_executors(spark, master))) != seen:
            seen, since = now, time.monotonic()


def _started_executors(spark: SparkSession, master: str) -> list[tuple[str, int]]:
    """Return the executors that this machine's workers have begun, and how many bytes each has printed."""
    if _local_cluster(master) is None:
        return []
    started = executors_of(default_home(), spark.sparkContext.applicationId)
    return [(executor.name, executor.bytes) for executor in started]


def _executors(spark: SparkSession, master: str) -> int:
    """Return how many are there; raises PlatformError where the cluster has given the application up."""
    try:
        return executors(spark)
    except Exception as error:
        if not (is_from_spark(error) and is_stopped(spark)):
            raise
        raise _executors_lost(master, "", "") from None


def _has_executor(spark: SparkSession, master: str) -> bool:
    """Whether one is there; raises PlatformError where each ends at once, or the cluster has given them up."""
    if _executors(spark, master):
        return True
    # Spark starts a process that ends at once again and again, without a word to the driver.
    cluster = _local_cluster(master)
    started = executors_of(default_home(), spark.sparkContext.applicationId) if cluster is not None else ()
    if cluster is None or len(started) <= _TIMES * cluster.workers * cluster.cores:
        return False
    spark.stop()
    raise _executors_lost(master, f"{len(started)} executors, ", last_message(started[0]))


def _executors_lost(master: str, how_many: str, last_line: str) -> PlatformError:
    why = last_line or "it gave them up"
    problem = f"executors on the cluster {master} end as soon as they are started ({how_many}{why})"
    fix = (
        "look into what they printed: headrace cluster logs, or the master's page; they need the Spark of the driver, "
        "its spark.authenticate.secret, and spark.executor.extraJavaOptions that Java knows"
    )
    return PlatformError(code="HR821", what=problem, fix=fix)


def _code() -> Path:
    """Headrace's own modules in one file, which Python can import from; gone at the end of this process."""
    place = Path(tempfile.mkdtemp(prefix="headrace-code-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    package = Path(str(files("headrace")))
    made = place / "headrace.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, Path("headrace") / file.relative_to(package))
    return made


def _local_cluster(master: str) -> Cluster | None:
    """Return the cluster that `headrace cluster start` has started, if `master` names one of its masters."""
    try:
        cluster = read(default_home()) if master_hosts(master) else None
    except HeadraceError:
        return None
    if cluster is None:
        return None
    return cluster if set(master_hosts(cluster.url)) & set(master_hosts(master)) else None


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    return host == "localhost" or host.endswith(".localhost") if address is None else address.is_loopback


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What a worker's Python is: where, which, of which Spark, and the versions of packages; None: not installed."""

    host: str
    python: str
    spark: str
    packages: Mapping[str, str | None]


def require_workers(spark: SparkSession, packages: Collection[str]) -> None:
    """Raise PlatformError where a worker lacks one of `packages`, or has another Python or Spark than the driver.

    packages: names of distributions, as pip knows them.
    """
    from pyspark import __version__

    try:
        workers = inspect_workers(spark, sorted({*COMMON, *packages}))
    except Exception as error:
        if not is_from_spark(error):
            raise
        refusal = _worker_refusal(str(error), ".".join(platform.python_version_tuple()[:2]))
        if refusal is None:
            raise
        raise PlatformError(refusal) from None
    if findings := [finding for worker in workers for finding in _faults(worker, __version__)]:
        raise PlatformError(findings)


def inspect_workers(spark: SparkSession, packages: Collection[str]) -> list[Worker]:
    """Return the Python of each executor that has a free core. Raises Spark's error where none can be started."""
    names = tuple(packages)

    def describe(_: Iterable[int]) -> Iterator[tuple[str, str, str, tuple[str | None, ...]]]:
        import platform
        import socket
        from importlib.metadata import PackageNotFoundError, version

        from pyspark import __version__

        versions: list[str | None] = []
        for name in names:
            try:
                versions.append(version(name))
            except PackageNotFoundError:
                versions.append(None)
        yield socket.gethostname(), platform.python_version(), __version__, tuple(versions)

    # One for each core at first, so that no executor is left out, and as many again for those that were busy.
    tasks = 2 * spark.sparkContext.defaultParallelism
    answers = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(describe).collect()
    return [
        Worker(host=host, python=python, spark=version, packages=dict(zip(names, installed, strict=True)))
        for host, python, version, installed in dict.fromkeys(answers)
    ]


def _faults(worker: Worker, version: str) -> Iterator[Finding]:
    lacking = [name for name, installed in worker.packages.items() if installed is None]
    if lacking:
        named = lacking[0] if len(lacking) == 1 else f"{', '.join(lacking[:-1])} and {lacking[-1]}"
        problem = f"the worker on {worker.host} lacks {named} in its Python {worker.python}"
        fix = f"install there: pip install {' '.join(lacking)}; {_CHOOSE}; or send them along: headrace cluster pack"
        yield Finding(code="HR826", what=problem, fix=fix)
    if worker.spark != version:
        problem = f"the worker on {worker.host} has Spark {worker.spark}, and the driver {version}"
        yield Finding(code="HR826", what=problem, fix=f"install pyspark=={worker.spark} here, or that of here there")


def _worker_refusal(message: str, own: str) -> Finding | None:
    """Return why no worker's Python came up, if the message says so."""
    if (other := _OTHER_PYTHON.search(message)) is not None:
        problem = f"the workers have Python {other['worker']}, and the driver {own}: Spark runs no two of them together"
        return Finding(code="HR826", what=problem, fix=f"install Python {own} on the workers, {_CHOOSE}")
    if (missing := _NO_PYTHON.search(message)) is not None:
        problem = f"the workers have no program '{missing['program']}', which is to be their Python"
        return Finding(code="HR826", what=problem, fix=f"install Python {own} on the workers, {_CHOOSE}")
    return None


def require_storage(spark: SparkSession, storage: Path) -> None:
    """Raise PlatformError where a worker cannot read what the driver has written into the storage."""
    # Hadoop reads no files whose names begin with a dot.
    probe = storage / f"{uuid.uuid4().hex[:12]}.headrace"
    # One for each core at first, so that no executor is left out, and as many again for those that were busy.
    tasks = 2 * spark.sparkContext.defaultParallelism
    with writing_to(storage):
        storage.mkdir(parents=True, exist_ok=True)
        replace_file(probe, "\n" * tasks)
    place = str(probe) if is_remote(storage) else f"file:{probe.absolute()}"
    try:
        # Hadoop takes a list of paths, of which a comma in braces begins no new one.
        spark.sparkContext.textFile(escape_pattern(place).replace(",", "{\\,}"), tasks).count()
    except Exception as error:
        if not is_from_spark(error):
            raise
        reasons = _REASON.findall(str(error))
        reason = f"{reasons[-1][1].strip()} ({reasons[-1][0]})" if reasons else type(error).__name__
        problem = f"workers of the cluster cannot read {storage}, where the driver keeps its storage: {reason}"
        fix = "name a storage that every machine reaches, as hdfs:// or s3a://; or mount the directory there too"
        raise PlatformError(code="HR859", what=problem, fix=fix) from None
    finally:
        probe.unlink(missing_ok=True)
