"""Hooks receive failures, recoveries and verdicts, within their time, and never keep a run waiting."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Finding
from headrace.export.hooks import Hooks
from headrace.model.operations import Hook
from headrace.redaction import remember
from headrace.units import Duration
from tests.rounds import rounds

pytestmark = pytest.mark.plain


class Receiver(ThreadingHTTPServer):
    """Takes what is posted; `statuses` are answered in turn, then 200, each after `wait` seconds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.wait = 0.0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/secret-path"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        time.sleep(self.server.wait)
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None: ...


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = Receiver()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def undelivered_of(hooks: list[Hook], verdict: dict[str, str]) -> list[Finding]:
    """What is reported of a verdict, for which a verify waits until each hook has it, or has not."""
    undelivered: list[Finding] = []
    observer = Hooks(hooks, "p", undelivered.append)
    observer.verdict("totals", verdict)
    findings = list(undelivered)
    observer.close()
    assert undelivered == findings
    return findings


def test_a_webhook_gets_the_events_that_it_wants_in_their_order(receiver: Receiver) -> None:
    receiver.statuses = [503]
    undelivered: list[Finding] = []
    remember("swordfish", "${PASSWORD}")
    hooks = Hooks([Hook(on=("failure", "recovery"), webhook=receiver.url)], "p", undelivered.append)
    hooks.send("failure", "totals", finding={"what": "refused swordfish"})
    hooks.send("verdict", "totals", verdict={})
    hooks.send("recovery", "totals", batch=3)
    hooks.close()
    assert [(event["event"], event["app"], event["query"]) for event in receiver.got] == [
        ("failure", "p", "totals"),
        ("failure", "p", "totals"),  # sent again after the 503
        ("recovery", "p", "totals"),
    ]
    assert receiver.got[0]["finding"] == {"what": "refused ${PASSWORD}"}
    assert undelivered == []


def test_a_command_gets_the_event_on_its_standard_input(tmp_path: Path) -> None:
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['HEADRACE_EVENT'] + sys.stdin.read())"
    hook = Hook(command=(sys.executable, "-c", code, str(tmp_path / "received")))
    assert undelivered_of([hook], {"verdict": "equal"}) == []
    event, _, body = (tmp_path / "received").read_text().partition("{")
    assert (event, json.loads("{" + body)["verdict"]) == ("verdict", {"verdict": "equal"})


def command(code: str) -> Hook:
    return Hook(command=(sys.executable, "-c", code), timeout=Duration.parse("1 second"))


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (
            Hook(webhook="http://127.0.0.1:9/secret", timeout=Duration.parse("1 second")),
            "http://127.0.0.1:9 did not get",
        ),
        (Hook(webhook="http://me:pass@[bad/secret"), "did not get a failure"),
        (command("import time; time.sleep(60)"), "it took longer than 1 second"),
        (command("import sys; sys.exit('no such channel')"), "exit code 1: no such channel"),
        (Hook(command=("/no/such/command",)), "No such file or directory"),
    ],
    ids=["no server listens", "no url", "hangs", "fails", "is not there"],
)
def test_a_hook_that_cannot_be_reached_is_one_warning_and_keeps_no_query_waiting(hook: Hook, words: str) -> None:
    undelivered: list[Finding] = []
    hooks = Hooks([hook], "p", undelivered.append)
    begun = time.monotonic()
    hooks.send("failure", "totals")
    assert time.monotonic() - begun < 0.2
    hooks.close()
    assert time.monotonic() - begun < 5
    (finding,) = undelivered
    assert (finding.code, finding.severity) == ("HR875", "warning")
    assert words in finding.what
    assert "secret" not in finding.what


@pytest.mark.parametrize("status", rounds([404, 302]))
def test_a_webhook_that_refuses_is_reported(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status] * 3
    (finding,) = undelivered_of([Hook(webhook=receiver.url)], {})
    assert f"it answers {status}" in finding.what
    assert len(receiver.got) == 3


def test_a_slow_webhook_ends_in_its_time(receiver: Receiver) -> None:
    receiver.wait = 3.0
    begun = time.monotonic()
    (finding,) = undelivered_of([Hook(webhook=receiver.url, timeout=Duration.parse("500 ms"))], {})
    assert "timed out" in finding.what
    assert time.monotonic() - begun < 2
