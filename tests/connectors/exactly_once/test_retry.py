"""Pauses between attempts: ever longer, to the end of the time or of the attempts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from headrace.connectors.exactly_once import Conflict, Retry, take_epoch
from headrace.errors import Finding, SinkError

pytestmark = pytest.mark.plain


def test_pauses_double_up_to_ten_seconds_and_end() -> None:
    now, pauses = [0.0], []
    for pause in Retry(seconds=60.0, clock=lambda: now[0]).pauses():
        pauses.append(pause)
        now[0] += pause
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert max(pauses) == 10.0
    assert 45 <= sum(pauses) <= 60
    assert list(Retry(seconds=0.0).pauses()) == []


def test_a_start_among_other_writers_waits_ever_longer_and_never_equally_long() -> None:
    pauses: list[float] = []
    contended = Finding(code="HR441", what="others commit all the time", fix="start again")

    def enter(quicker: Iterator[int]) -> str:
        if next(quicker, None) is None:
            return "epoch"
        raise Conflict

    three = iter(range(3))
    assert take_epoch(lambda: enter(three), contended, sleep=pauses.append) == "epoch"
    assert len(pauses) == 3
    pauses.clear()
    with pytest.raises(SinkError, match="HR441"):
        take_epoch(lambda: enter(count()), contended, sleep=pauses.append)
    assert len(pauses) == 7
    assert all(0.5 * min(0.2 * 2**number, 5) <= pause <= 5 for number, pause in enumerate(pauses))
    assert len(set(pauses)) == 7
