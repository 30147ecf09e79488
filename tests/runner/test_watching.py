"""Events of batches leave the supervisor its other work, however fast they come, and none is lost."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.runner import query_run
from headrace.runner.query_run import QueryRun, Watching
from headrace.spark.stream.listener import ListenerEvent

pytestmark = pytest.mark.plain
BATCH = ListenerEvent(kind="progress", run_id="1", json="{}")
END = ListenerEvent(kind="terminated", run_id="1")


class Stream:
    """A query whose next batch has come each time that one is taken."""

    def __init__(self, batches: int) -> None:
        self.events: queue.SimpleQueue[ListenerEvent] = queue.SimpleQueue()
        self.taken, self.batches = 0, batches
        running = SimpleNamespace(handle=SimpleNamespace(runId="1"))
        run = SimpleNamespace(running=running, query=SimpleNamespace(name="q"), terminated=False, event_at=0.0)
        self.run = cast(QueryRun, run)
        self.watching = Watching(cast(Any, self), self.take, lambda _: None)
        self.watching.add(self.run)
        self.events.put(BATCH)

    def take(self, *_: object) -> None:
        self.taken += 1
        self.events.put(BATCH if self.taken < self.batches else END)


def test_what_comes_while_events_are_taken_waits_for_the_next_time() -> None:
    stream = Stream(batches=50)
    stream.events.put(BATCH)
    for taken in (2, 4):
        stream.watching.take_events()
        assert stream.taken == taken
    stream.watching.take_events(most_seconds=0.0)
    assert stream.taken == 5, "one event takes its time in any case"


def test_of_a_query_that_has_ended_all_events_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(batches=2)
    for _ in range(4):
        stream.watching.take_events()
    assert (stream.taken, stream.run.terminated) == (2, True)
    monkeypatch.setattr(query_run, "LAST_EVENTS_SECONDS", 0.0)
    stream = Stream(batches=0)
    stream.events.put(END)
    stream.watching.drain_events(stream.run)
    assert stream.taken == 1, "a last look is taken when the time is over"
