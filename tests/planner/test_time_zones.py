"""Zones of time are compared by their clocks, whatever they are called."""

from __future__ import annotations

import pytest

from headrace.generations.manifest import QueryForm
from headrace.planner.ends import TIME_ZONE, compare_settings
from headrace.planner.time_zones import is_same_clock

pytestmark = pytest.mark.plain

SAME = (
    *(("UTC", name) for name in ("Etc/UTC", "Z", "GMT", "+00:00", "UTC+0", "UT-00", "Etc/Zulu", "Etc/GMT")),
    *(("Asia/Kolkata", "Asia/Calcutta"), ("Etc/GMT-1", "+01:00"), ("UTC+1", "GMT+01:00"), ("+05:30", "+0530")),
)
OTHER = (
    *(("UTC", name) for name in ("Europe/London", "Africa/Abidjan", "+00:01", "-01:00", "+25:00", "Nowhere/At_All")),
    *(("UTC", name) for name in ("", " ", "../UTC", "/etc/passwd", "a\0b", "\udcff", "x" * 10_000)),
    *(("Europe/Berlin", "Europe/Paris"), ("Europe/Berlin", "+01:00"), ("America/New_York", "America/Detroit")),
)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_zones_with_the_same_clock_are_the_same(one: str, other: str) -> None:
    assert is_same_clock(one, other)
    assert is_same_clock(other, one)
    assert list(compare_settings(QueryForm(settings={TIME_ZONE: one}), {TIME_ZONE: other})) == []


@pytest.mark.parametrize(("one", "other"), OTHER, ids=ascii)
def test_zones_with_another_clock_at_some_time_are_not(one: str, other: str) -> None:
    assert not is_same_clock(one, other)
    assert is_same_clock(other, other)
    (difference,) = compare_settings(QueryForm(settings={TIME_ZONE: one}), {TIME_ZONE: other})
    assert difference.fix.startswith(f'set it as it was: spark.conf.set("{TIME_ZONE}", "{one}")')
