"""A plug-in for pytest: `spark`, one local session for all tests, and `timeline`, queries over batches.

pytest_plugins = ["headrace.testing.plugin"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from headrace.api import load
from headrace.model import Project
from headrace.testing import timelines
from headrace.testing.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a local Spark session with the settings that a project runs with."""
    session = local_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def headrace_project(request: pytest.FixtureRequest) -> Project:
    """Return the test's project: the nearest directory above it with a headrace.yml; override it for another.

    Secrets are not needed: a source or a sink whose variable is not set is replaced by the kit.
    """
    here = next((place for place in request.path.parents if (place / "headrace.yml").is_file()), request.path.parent)
    return load(here, may_lack_variables=True)


@pytest.fixture
def timeline(spark: SparkSession, headrace_project: Project) -> Callable[..., timelines.TimelineRun]:
    """Run `headrace.testing.timeline` for the queries of `headrace_project`, in the session of all tests."""
    return partial(timelines.timeline, headrace_project, spark=spark)
