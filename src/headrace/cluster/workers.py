"""Whether the Python of a cluster's workers can run what the driver sends them, asked before a query starts."""

from __future__ import annotations

import platform
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Finding, PlatformError
from headrace.spark.messages import is_from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What every worker needs to take rows from Spark.
COMMON = ("pyarrow",)
_OTHER_PYTHON = re.compile(r"Python in worker has different version: (?P<worker>[\d.]+) than that in driver: ([\d.]+)")
_NO_PYTHON = re.compile(r'Cannot run program "(?P<program>[^"]+)"')
_CHOOSE = "or name one that has, by PYSPARK_PYTHON or spark.pyspark.python"


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
        workers = look(spark, sorted({*COMMON, *packages}))
    except Exception as error:
        if not is_from_spark(error):
            raise
        found = _not_started(str(error), ".".join(platform.python_version_tuple()[:2]))
        if found is None:
            raise
        raise PlatformError(found) from None
    if findings := [finding for each in workers for finding in _faults(each, __version__)]:
        raise PlatformError(findings)


def look(spark: SparkSession, packages: Collection[str]) -> list[Worker]:
    """The Python of each executor that has a free core. Raises Spark's error where none can be started."""
    names = tuple(packages)

    def described(_: Iterable[int]) -> Iterator[tuple[str, str, str, tuple[str | None, ...]]]:
        import platform
        import socket
        from importlib.metadata import PackageNotFoundError, version

        from pyspark import __version__

        found: list[str | None] = []
        for name in names:
            try:
                found.append(version(name))
            except PackageNotFoundError:
                found.append(None)
        yield socket.gethostname(), platform.python_version(), __version__, tuple(found)

    # One for each core at first, so that no executor is left out, and as many again for those that were busy.
    tasks = 2 * spark.sparkContext.defaultParallelism
    answers = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(described).collect()
    return [
        Worker(host=host, python=python, spark=version, packages=dict(zip(names, found, strict=True)))
        for host, python, version, found in dict.fromkeys(answers)
    ]


def _faults(worker: Worker, version: str) -> Iterator[Finding]:
    lacking = [name for name, found in worker.packages.items() if found is None]
    if lacking:
        named = lacking[0] if len(lacking) == 1 else f"{', '.join(lacking[:-1])} and {lacking[-1]}"
        what = f"the worker on {worker.host} lacks {named} in its Python {worker.python}"
        fix = f"install there: pip install {' '.join(lacking)}; {_CHOOSE}; or send them along: headrace cluster pack"
        yield Finding(code="HR826", what=what, fix=fix)
    if worker.spark != version:
        what = f"the worker on {worker.host} has Spark {worker.spark}, and the driver {version}"
        yield Finding(code="HR826", what=what, fix=f"install pyspark=={worker.spark} here, or that of here there")


def _not_started(message: str, own: str) -> Finding | None:
    """Why no worker's Python came up, where the message tells."""
    if (other := _OTHER_PYTHON.search(message)) is not None:
        what = f"the workers have Python {other['worker']}, and the driver {own}: Spark runs no two of them together"
        return Finding(code="HR826", what=what, fix=f"install Python {own} on the workers, {_CHOOSE}")
    if (missing := _NO_PYTHON.search(message)) is not None:
        what = f"the workers have no program '{missing['program']}', which is to be their Python"
        return Finding(code="HR826", what=what, fix=f"install Python {own} on the workers, {_CHOOSE}")
    return None
