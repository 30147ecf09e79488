"""The names of a source's uses, and which of a checkpoint's names are uses of it."""

from __future__ import annotations

import pytest

from headrace.checkpoint.sources import further_uses, source_of, use_name

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("number", [1, 2, 9, 10, 31])
@pytest.mark.parametrize("source", ["events", "a__b", "x__1"])
def test_a_use_leads_back_to_its_source(source: str, number: int) -> None:
    assert source_of(use_name(source, number)) == source


def test_the_first_use_keeps_the_name_that_checkpoints_know() -> None:
    assert use_name("events", 1) == "events"


def test_only_uses_of_known_sources_are_found() -> None:
    sources = ["events", "events__2", "events__3", "others__2", "a__b", "events__1", "events__02"]
    assert further_uses(["events", "a__b"], sources) == ("events__2", "events__3")
