"""Webhooks and commands that get failures, recoveries and verdicts; they never keep a batch waiting."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from headrace.contract import BatchRecord, Observer, Outcome, QueryState
from headrace.errors import Finding
from headrace.model.operations import Hook, HookEvent
from headrace.redaction import redacted

HELD = 1_000
ATTEMPTS = 3
_PAUSE_SECONDS = 1.0


class HookError(Exception):
    """A hook did not take an event; the text says why, without secrets."""


class Hooks(Observer):
    """Sends failures, waits, recoveries and verdicts to hooks.

    A thread of its own delivers events one after another, each within its hook's time. A recovery is the first batch
    after a failure, or that there is nothing to do.

    report: gets a finding, from that thread, if a hook did not get an event.
    """

    def __init__(self, hooks: Sequence[Hook], app: str, report: Callable[[Finding], None]) -> None:
        self._hooks, self._app, self._report = tuple(hooks), app, report
        self._failed: set[str] = set()
        self._queue: queue.Queue[tuple[Hook, dict[str, Any]] | None] = queue.Queue(HELD)
        self._thread = threading.Thread(target=self._deliver, name="hooks", daemon=True)
        if self._hooks:
            self._thread.start()

    def progressed(self, record: BatchRecord) -> None:
        if record.query in self._failed:
            self._failed.discard(record.query)
            self.send("recovery", record.query, batch=record.batch)

    def changed(self, state: QueryState) -> None:
        if state.state == "restarting" and state.cause is not None:
            self._failure(state.query, {"finding": state.cause.as_dict(), "restart": state.next_restart})
        elif state.waits is not None and state.query not in self._failed:
            self._failed.add(state.query)
            self.send("waiting", state.query, finding=state.waits.as_dict(), state=state.state)
        elif state.healthy and state.waits is None and state.query in self._failed:
            self._failed.discard(state.query)
            self.send("recovery", state.query, batch=None)

    def ended(self, outcome: Outcome) -> None:
        if outcome.state == "failed":
            finding = outcome.finding.as_dict() if outcome.finding else None
            self._failure(outcome.query, {"finding": finding, "restart": None})

    def verdict(self, query: str, verdict: Mapping[str, Any]) -> None:
        self.send("verdict", query, verdict=verdict)
        self._queue.join()

    def _failure(self, query: str, facts: dict[str, object]) -> None:
        self._failed.add(query)
        self.send("failure", query, **facts)

    def send(self, event: HookEvent, query: str, **facts: Any) -> None:
        """Send an event to every hook that wants it; returns at once."""
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        body = {"event": event, "app": self._app, "query": query, "at": at, **facts}
        for hook in self._hooks:
            if event in hook.on:
                try:
                    self._queue.put_nowait((hook, body))
                except queue.Full:
                    self._report(_delivery_failure(hook, event, f"{HELD:,} events wait already"))

    def close(self) -> None:
        """Deliver what waits, for as long as the slowest hook may take, and no more."""
        if not self._hooks:
            return
        self._queue.put(None)
        self._thread.join(max(hook.timeout.seconds for hook in self._hooks) + 1.0)

    def _deliver(self) -> None:
        while (waiting := self._queue.get()) is not None:
            hook, body = waiting
            try:
                deliver(hook, body)
            except HookError as error:
                self._report(_delivery_failure(hook, body["event"], str(error)))
            finally:
                self._queue.task_done()


def deliver(hook: Hook, body: Mapping[str, Any]) -> None:
    """Deliver an event to one hook within its time; raises HookError."""
    text = redacted(json.dumps(body, default=str, ensure_ascii=False)).encode()
    until = time.monotonic() + hook.timeout.seconds
    if hook.command:
        _call(hook, text, str(body["event"]))
        return
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _post(hook, text, max(0.1, until - time.monotonic()))
            return
        except HookError:
            if attempt == ATTEMPTS or time.monotonic() + _PAUSE_SECONDS >= until:
                raise
            time.sleep(_PAUSE_SECONDS)


def _post(hook: Hook, body: bytes, seconds: float) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "headrace"}
    try:
        request = urllib.request.Request(hook.webhook, data=body, headers=headers, method="POST")
        with _OPENER.open(request, timeout=seconds):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise HookError(f"it answers {error.code}") from error
    except (OSError, ValueError) as error:  # ValueError: of a URL that no request can be made of
        raise HookError(str(getattr(error, "reason", "") or error) or type(error).__name__) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A webhook that moved would get a GET without the event."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _call(hook: Hook, body: bytes, event: str) -> None:
    try:
        done = subprocess.run(
            hook.command,
            input=body,
            capture_output=True,
            timeout=hook.timeout.seconds,
            check=False,
            env={**os.environ, "HEADRACE_EVENT": event},
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise HookError(f"it took longer than {hook.timeout}") from error
    except OSError as error:
        raise HookError(error.strerror or str(error)) from error
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise HookError(f"it ended with exit code {done.returncode}" + (f": {errors[-1][:200]}" if errors else ""))


def _delivery_failure(hook: Hook, event: str, why: str) -> Finding:
    # A webhook's path is often its secret.
    place = hook.command[0] if hook.command else "/".join(hook.webhook.split("/")[:3]).rpartition("@")[2]
    problem = redacted(f"the hook {place} did not get a {event}: {why}")
    return Finding(code="HR875", what=problem, fix="correct the hook in headrace.yml; the queries run on without it")
