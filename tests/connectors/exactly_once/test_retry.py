"""Pauses between attempts: ever longer, to the end of the time or of the attempts."""

from __future__ import annotations

import pytest

from headrace.connectors.exactly_once import CONTENDED, Retry, attempts

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


def test_attempts_among_other_writers_wait_ever_longer_and_never_equally_long() -> None:
    pauses: list[float] = []
    assert list(attempts(CONTENDED, sleep=pauses.append)) == list(range(8))
    assert len(pauses) == 7
    assert all(0.5 * min(0.2 * 2**number, 5) <= pause <= 5 for number, pause in enumerate(pauses))
    assert len(set(pauses)) == 7
