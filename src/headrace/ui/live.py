"""What open pages get as it happens: one look at the history, and one answer, for all of them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool

LOOK_SECONDS = 1.0
# A process that was killed writes nothing: how it stands is seen by looking.
REREAD_SECONDS = 5.0
SILENT_SECONDS = 15.0


class Live:
    """Looks at the history once a second while a page listens, and sends changes to all pages.

    look: returns what to send, or None if nothing was written since; its argument says whether to look in any case.
    followed_since: since when it has looked each second, None while no page listens.
    """

    def __init__(self, look: Callable[[bool], dict[str, Any] | None]) -> None:
        self._look = look
        self._listeners: set[asyncio.Queue[str]] = set()
        self._task: asyncio.Task[None] | None = None
        self._last = ""
        self.followed_since: float | None = None

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events for one listener, the first at once."""
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=4)
        self._listeners.add(queue)
        if self._last:
            queue.put_nowait(self._last)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield "retry: 2000\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), SILENT_SECONDS)
                except asyncio.TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._listeners.discard(queue)

    async def _watch(self) -> None:
        looked_at = 0.0
        while self._listeners:
            again = time.monotonic() - looked_at >= REREAD_SECONDS
            standings = await run_in_threadpool(self._look, again)
            if standings is not None:
                looked_at = time.monotonic()
                self._publish(f"event: standing\ndata: {json.dumps(standings)}\n\n")
            self.followed_since = self.followed_since or time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)
        self._last, self.followed_since = "", None

    def _publish(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        for queue in self._listeners:
            # Each event says all: who reads slowly misses those between.
            while queue.full():
                with suppress(asyncio.QueueEmpty):
                    queue.get_nowait()
            queue.put_nowait(text)


ANSWERS_MOST = 100


class Shared:
    """Keeps answers for as long as `mark` is the same; while it is None nothing is kept.

    Pages hear of a change and ask at the same moment: the second one waits for the first one's answer.
    """

    def __init__(self, mark: Callable[[], object]) -> None:
        self._mark = mark
        self._of: object = None
        self._answers: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the answer to `key`, made once."""
        mark = self._mark()
        if mark is None:
            return make()
        with self._lock:
            if mark != self._of or len(self._answers) >= ANSWERS_MOST:
                self._of, self._answers = mark, {}
            answers = self._answers
            earlier = answers.get(key)
            if earlier is None:
                made = answers[key] = Future()
        if earlier is not None:
            return earlier.result()
        try:
            made.set_result(make())
        except BaseException as error:
            answers.pop(key, None)
            made.set_exception(error)
            raise
        return made.result()
