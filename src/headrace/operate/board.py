"""How each query of a running application stands at this moment, for whoever asks from another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias

from headrace.errors import Finding

Standing: TypeAlias = Literal[
    "waiting", "starting", "running", "stopping", "paused", "restarting", "finished", "stopped", "failed"
]
ENDED: tuple[Standing, ...] = ("finished", "stopped", "failed")
# It should run and does not; who waits for others, is paused, was stopped or has come to its end should not.
DOWN: tuple[Standing, ...] = ("starting", "restarting", "failed")


@dataclass(frozen=True, kw_only=True)
class Post:
    """One query on the board.

    since: when it went over into this state. by: who paused it. restarts: how often it was started again after
    a failure. handle: Spark's StreamingQuery of its newest start. error: of what it failed last.
    columns: gives the names and types of those of each source, and of its result under no name.
    """

    query: str
    state: Standing = "waiting"
    since: datetime
    by: str = ""
    restarts: int = 0
    error: Finding | None = None
    handle: Any = None
    columns: Callable[[], Mapping[str, Sequence[tuple[str, str]]]] = dict

    def as_dict(self) -> dict[str, Any]:
        """The post as plain data."""
        return {
            "query": self.query,
            "state": self.state,
            "since": self.since.isoformat(),
            "by": self.by,
            "restarts": self.restarts,
            "error": self.error.as_dict() if self.error else None,
        }


class Board:
    """The posts of an application's queries; written by the thread that supervises them.

    refreshed_at: by query, when each of its tables was computed last. due_at: by query that runs on, until when Spark
    should have told of a batch, or of having nothing to do. beat_at: when the supervisor last came by.
    """

    def __init__(self) -> None:
        self._posts: dict[str, Post] = {}
        self._changed = threading.Condition()
        self.refreshed_at: dict[str, Mapping[str, float]] = {}
        self.due_at: Mapping[str, float] = {}
        self.over = False
        self.beat_at = time.monotonic()

    def post(self, query: str, state: Standing, **facts: Any) -> None:
        """Say how a query stands now; what is not said stays, but who paused it."""
        with self._changed:
            known = self._posts.get(query) or Post(query=query, since=_now())
            since = known.since if known.state == state else _now()
            self._posts[query] = replace(known, **{"by": "", **facts, "state": state, "since": since})
            self._changed.notify_all()

    def close(self) -> None:
        """The application is over."""
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def posts(self) -> Mapping[str, Post]:
        """All of them, by query."""
        with self._changed:
            return dict(self._posts)

    def get(self, query: str) -> Post | None:
        """That of one query, if the application has it."""
        with self._changed:
            return self._posts.get(query)

    def wait(self, holds: Callable[[Mapping[str, Post]], bool], seconds: float | None = None) -> bool:
        """Wait until something holds of the posts, or the application is over; False when the time is up before."""
        with self._changed:
            return self._changed.wait_for(lambda: self.over or holds(self._posts), seconds)

    def beat(self, due_at: Mapping[str, float]) -> None:
        """The supervising thread lives, and knows when each query is due."""
        self.due_at, self.beat_at = due_at, time.monotonic()


def _now() -> datetime:
    return datetime.now(timezone.utc)
