"""Fixtures that every tier shares: one Spark session, and a place for each test's files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services import connectors

pytest_plugins = ("tests.capability_plugin", "tests.servers")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTORS = ("kafka", "avro", "delta")
TIERS = ("plain", "spark", "services", "crash", "browser")
# The JVMs of tests live too short for what the second compiler gains. Alone, the first has a fifth of the usual room,
# and would clear it again and again.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test without a tier, and put the fast tiers first."""
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            raise pytest.UsageError(f"{item.nodeid} has no tier; mark it with one of {', '.join(TIERS)}")
    items.sort(key=lambda item: next(i for i, tier in enumerate(TIERS) if item.get_closest_marker(tier)))


@pytest.fixture(autouse=True)
def fresh_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of one test is a word of another."""
    from headrace import redaction

    monkeypatch.setattr(redaction, "KNOWN", redaction.Redactor())


class Sessions:
    """One local session for each tier, with the settings that Headrace runs with; that of `services` has connectors."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.current: SparkSession | None = None
        self.connectors: tuple[str, ...] = ()

    def with_connectors(self, names: tuple[str, ...]) -> SparkSession:
        """A session that has these connectors, of which a JVM learns only at its start."""
        from headrace.testing.spark_session import local_session

        if self.current is None or not set(names) <= set(self.connectors):
            self.stop()
            self.current = local_session(self.home, connectors=names)
            self.connectors = names
        return self.current

    def stop(self) -> None:
        from pyspark import SparkContext

        if self.current is None:
            return
        self.current.stop()
        self.current = None
        gateway = SparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()
            SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    connectors.use()
    found = Sessions(tmp_path_factory.mktemp("spark"))
    yield found
    found.stop()


@pytest.fixture
def spark(sessions: Sessions, request: pytest.FixtureRequest) -> SparkSession:
    """The session of the test's tier."""
    from headrace.errors import PlatformError
    from tests.servers import unavailable

    if request.node.get_closest_marker("services"):
        try:
            return sessions.with_connectors(CONNECTORS)
        except PlatformError as fault:
            if request.node.get_closest_marker("connectors") or os.environ.get("CI") == "true":
                unavailable(str(fault.findings[0]))
    return sessions.with_connectors(())
