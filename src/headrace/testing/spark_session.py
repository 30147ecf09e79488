"""A local Spark session for tests, with the settings that a project runs with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.run.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_session(home: Path, *, cores: int = 2) -> SparkSession:
    """A session on `cores` threads that keeps its warehouse and scratch files below `home`."""
    return start(
        master=f"local[{cores}]",
        purpose="stream",
        name="headrace-tests",
        overrides={
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "scratch"),
            "spark.sql.shuffle.partitions": str(cores),
        },
    )
