"""Fixtures that every tier shares: one Spark session, and a place for each test's files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest_plugins = ("tests.capability_plugin", "tests.servers")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIERS = ("plain", "spark", "services", "crash", "browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test without a tier, and put the fast tiers first."""
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            raise pytest.UsageError(f"{item.nodeid} has no tier; mark it with one of {', '.join(TIERS)}")
    items.sort(key=lambda item: next(i for i, tier in enumerate(TIERS) if item.get_closest_marker(tier)))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session with the settings that Headrace runs with, for all tests of the tier."""
    from headrace.testing.spark_session import local_session

    home = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    started = local_session(home)
    yield started
    started.stop()
