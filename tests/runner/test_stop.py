"""The first request to stop ends a run after the running batch, the second one at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from headrace.runner import stop
from headrace.runner.stop import Stopping, StopRequest, stop_on_signals
from tests.waiting import eventually

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("asked", "now"),
    [(0, False), (1, False), (2, True), (3, True)],
    ids=["not asked", "once", "twice", "thrice"],
)
def test_the_second_time_means_now(asked: int, now: bool) -> None:
    request = StopRequest()
    for _ in range(asked):
        request.ask()
    assert (bool(request), request.now) == (asked > 0, now)


def test_who_asks_for_a_stop_that_was_asked_for_changes_nothing() -> None:
    request = StopRequest()
    seen = []
    for now in (False, False, True, True, False):
        request.ask_for(now=now)
        seen.append((bool(request), request.now))
    assert seen == [(True, False)] * 2 + [(True, True)] * 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_asks_and_the_old_handler_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_on_signals(StopRequest()) as request:
        os.kill(os.getpid(), number)
        assert request
        assert not request.now
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("signals", "grace", "ended"),
    [(1, 0.1, []), (2, 1.0, []), (2, 0.1, [signal.SIGTERM]), (3, 60.0, [signal.SIGTERM])],
    ids=["asked once", "stops in time", "hangs", "asked a third time"],
)
def test_what_hangs_after_the_second_signal_is_ended(
    monkeypatch: pytest.MonkeyPatch, signals: int, grace: float, ended: list[int]
) -> None:
    monkeypatch.setattr(stop, "GRACE_SECONDS", grace)
    calls: list[int] = []
    with stop_on_signals(StopRequest(), end_now=calls.append):
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
        if ended:
            eventually(lambda: calls)
    if not ended:
        time.sleep(grace + 0.2)
    assert calls == ended


@pytest.mark.parametrize(("seconds", "settled"), [(0.2, 60.0), (60.0, 0.2)], ids=["a moment", "too long"])
def test_a_query_that_was_broken_off_is_waited_for_until_its_thread_has_ended(
    monkeypatch: pytest.MonkeyPatch, seconds: float, settled: float
) -> None:
    """Spark says that it has ended before its last events have reached the session."""
    monkeypatch.setattr(stop, "SETTLED_SECONDS", settled)
    ended: list[str] = []
    over = threading.Event()

    def stop_it() -> None:
        over.wait(seconds)
        ended.append("query")

    handle = SimpleNamespace(runId="1", stop=stop_it)
    running = SimpleNamespace(query=SimpleNamespace(name="q"), asked=True, order=None)
    running.running = SimpleNamespace(handle=handle)
    request, ignore = StopRequest(), SimpleNamespace(change=lambda *_: None, stopping=lambda *, now: None)
    request.ask_for(now=True)
    stops = Stopping(ignore, request, ignore, ignore)
    stops.step([running])
    stops.settle()
    assert ended == (["query"] if seconds < settled else [])
    over.set()
