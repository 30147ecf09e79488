"""Lengths of time and sizes in the words of users and of Spark."""

from __future__ import annotations

import pytest

from headrace.units import Duration, size_bytes, spark_milliseconds

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("7d", 604800000),
        ("12 H", 43200000),
        ("5min", 300000),
        ("250us", 0.25),
        ("-1s", -1000),
        ("7", None),
        ("7 days", None),
        ("", None),
        ("1.5s", None),
    ],
)
def test_a_time_as_spark_reads_it(text: str, milliseconds: float | None) -> None:
    assert spark_milliseconds(text) == milliseconds
    assert spark_milliseconds("7", default_unit="s") == 7000


@pytest.mark.parametrize(
    ("text", "size", "iec"),
    [
        ("64m", 64 << 20, 64 << 20),
        ("1 GB", 1 << 30, 1 << 30),
        ("10", 10 << 20, 10 << 20),
        ("10b", 10, 10),
        ("64MiB", None, 64 << 20),
        ("64ib", None, None),
        ("1.5g", None, None),
        ("m", None, None),
    ],
)
def test_a_size_as_spark_reads_it(text: str, size: int | None, iec: int | None) -> None:
    assert size_bytes(text, default_unit="m") == size
    assert size_bytes(text, default_unit="m", iec=True) == iec


@pytest.mark.parametrize("text", ["500ms", "1 second", "1 hour 30 minutes", "interval 2 days"])
def test_a_time_of_a_user_is_one_for_sparks_triggers(text: str) -> None:
    assert Duration.parse(text).spark_interval == f"{Duration.parse(text).milliseconds} milliseconds"
