"""A local Spark session for tests, with the settings that a project runs with."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.jvm.jars import choose, settings
from headrace.spark.jvm.session import start
from headrace.spark.jvm.settings import LOCAL_LISTING, Purpose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_session(
    home: Path, *, cores: int = 2, connectors: Sequence[str] = (), purpose: Purpose = "stream"
) -> SparkSession:
    """Start a Spark session on threads of this process.

    Args:
        home: The directory of its warehouse and its scratch files.
        cores: The number of threads.
        connectors: Names of `headrace jars list`.
        purpose: What the session is for, which decides on its settings.

    Returns:
        The session.

    Raises:
        PlatformError: The jars of a connector cannot be fetched.
    """
    return start(
        master=f"local[{cores}]",
        purpose=purpose,
        name="headrace-tests",
        overrides={
            **settings(choose(connectors)),
            LOCAL_LISTING.key: LOCAL_LISTING.value,
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "scratch"),
            "spark.sql.shuffle.partitions": str(cores),
        },
    )


def shared_session() -> SparkSession:
    """Return the session that is active in this process, or a local one that is started for all tests of it."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    # With both compilers: a hundred cases take three quarters of the time, the first eight a twentieth more.
    return active or local_session(Path(tempfile.mkdtemp(prefix="headrace-tests-")), purpose="reading")
