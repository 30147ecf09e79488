"""The events of the demo: the same for the same seed, out of order, some late, some twice."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import datetime, timedelta

import pytest

from headrace.demo.generator import ACTIONS, BLOCK, FIRST, HOURS_LATE, SECONDS_APART, events

pytestmark = pytest.mark.plain


def test_the_same_seed_gives_the_same_events() -> None:
    assert list(events(7, 2500)) == list(events(7, 2500))
    assert list(events(7, 100)) != list(events(8, 100))


@pytest.mark.parametrize("first", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 17], ids=str)
def test_events_can_be_made_from_any_number_on(first: int) -> None:
    assert list(events(7, 1200, first=first)) == list(events(7, first + 1200))[first:]


def test_late_events_are_later_than_the_watermark_and_the_others_are_not() -> None:
    for number, event in enumerate(events(7, 30_000)):
        behind = FIRST + timedelta(seconds=number * SECONDS_APART) - event.time
        if event.kind == "late":
            assert behind >= timedelta(hours=HOURS_LATE[0])
        elif event.kind == "usual":
            assert event.time >= FIRST
            assert timedelta(0) <= behind <= timedelta(minutes=5)


def test_some_events_are_late_some_come_twice_and_most_are_out_of_order() -> None:
    made = list(events(7, 10_000, first=20_000))
    kinds = Counter(event.kind for event in made)
    assert 50 < kinds["late"] < 200
    assert 50 < kinds["twice"] < 200
    usual = [event.time for event in made if event.kind == "usual"]
    assert sum(later < earlier for earlier, later in itertools.pairwise(usual)) > 1000


def test_an_event_that_comes_twice_is_equal_to_an_earlier_one() -> None:
    seen = set()
    for event in events(7, 3000):
        if event.kind == "twice":
            assert event[:3] in seen
        seen.add(event[:3])


def test_an_event_is_written_as_json_with_its_time_in_utc() -> None:
    for event in events(7, 50):
        written = json.loads(event.as_json())
        assert set(written) == {"phone_id", "time", "action"}
        assert written["action"] in ACTIONS
        assert datetime.fromisoformat(written["time"].replace("Z", "+00:00")) == event.time
