"""A Spark that Headrace was not tried with is refused with a sentence."""

from __future__ import annotations

import re

import pytest

from headrace.errors import PlatformError
from headrace.spark.jvm import jars
from headrace.spark.jvm.maven import known_sums
from headrace.spark.jvm.preconditions import COMPLETE_BEFORE, FIRST, require_version

from .private_parts import SOURCES

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.0.dev1"])
def test_a_version_in_the_range_is_taken(version: str) -> None:
    require_version(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.1.4", "4.4.0", "5.0.0-preview1"])
def test_a_version_outside_is_refused(version: str) -> None:
    with pytest.raises(PlatformError, match=f"HR446: this is Spark {re.escape(version)}"):
        require_version(version)


def test_the_package_asks_for_those_for_which_every_connector_is_to_be_had() -> None:
    project = (SOURCES.parents[1] / "pyproject.toml").read_text()
    first, beyond = (".".join(map(str, version)) for version in (FIRST, COMPLETE_BEFORE))
    assert f'"pyspark>={first},<{beyond}"' in project


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1"])
def test_each_of_them_has_connectors_whose_sums_are_known(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "version", lambda _: version)
    coordinates = [
        coordinate for name in ("kafka", "delta") for coordinate in jars.known_connectors()[name].coordinates
    ]
    named = {"-".join(coordinate.split(":")[1:]) + ".jar" for coordinate in coordinates}
    assert named <= set(known_sums())
