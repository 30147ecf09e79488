"""A plug-in for pytest: the fixture `spark`, one local session for all tests of a distribution.

pytest_plugins = ["headrace.testing.plugin"]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.testing.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session with the settings that a project runs with."""
    session = local_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
