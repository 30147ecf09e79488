"""What passes from one start of an application to the next, and the answer of the next one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.api import load, running
from headrace.contract import QueryState
from headrace.control.board import Board, Orders
from headrace.control.deploys import DeployRequest, DeployResult, DeployStep
from headrace.control.new_start import VARIABLE, NewStart, NewStartAnswer
from headrace.control.server import ControlServer
from headrace.errors import Finding
from headrace.runner.new_start import plan_new_start
from headrace.runner.stop import StopRequest

from .test_control import write_project

pytestmark = pytest.mark.plain
FAULT = Finding(code="HR601", what="it broke", fix="mend it")
PLANNED = DeployResult(
    steps=(DeployStep(query="totals", action="restart", from_batch=7), DeployStep(query="other", action="restart")),
    reasons=("a setting has changed",),
    pid=os.getpid(),
)


def test_the_next_start_keeps_paused_and_stopped_what_is_so() -> None:
    board = Board()
    for state in (
        QueryState(query="totals", state="running"),
        QueryState(query="rested", state="paused", by="ann"),
        QueryState(query="resting", state="pausing"),
        QueryState(query="stopped", state="stopped"),
        QueryState(query="removed", state="stopped"),
    ):
        board.post(state)
    first = {"PATH": "/bin"}
    environ = NewStart.of_board(board, 7, accept_forward=True).environ(first)
    taken = NewStart.take(environ)
    assert (environ, taken is not None) == (first, True)
    assert taken is not None
    assert (taken.connection, taken.accept_forward) == (7, True)
    held = [(order.verb, order.query, order.by) for order in taken.orders(["totals", "rested", "resting", "stopped"])]
    assert held == [("pause", "rested", "ann"), ("pause", "resting", ""), ("stop", "stopped", "")]
    assert NewStart.take({VARIABLE: ""}) is None


@contextmanager
def deploying(
    root: Path, begin_again: Callable[[int, DeployRequest], None], result: DeployResult = PLANNED
) -> Iterator[None]:
    """An application that answers each deploy so."""
    orders = Orders()

    def carry_out() -> None:
        order = orders.take()
        assert order is not None
        order.report_deploy(result)

    orders.on_order(carry_out)
    write_project(root)
    storage = root / ".headrace"
    storage.mkdir(exist_ok=True)
    server = ControlServer(
        storage,
        project="p",
        board=Board(),
        orders=orders,
        stop=lambda now: False,
        owns_process=False,
        begin_again=begin_again,
    )
    try:
        yield
    finally:
        server.close()


def test_who_has_ordered_a_new_start_gets_its_answer(tmp_path: Path) -> None:
    asked = list[DeployRequest]()

    def begin_again(connection: int, request: DeployRequest) -> None:
        asked.append(request)
        answer = NewStartAnswer(connection).expect(["totals", "other"])
        answer.changed(QueryState(query="totals", state="running"))
        answer.changed(QueryState(query="totals", state="running", healthy=True))
        answer.changed(QueryState(query="unknown", state="failed", cause=FAULT))
        answer.changed(QueryState(query="other", state="failed", cause=FAULT))

    with deploying(tmp_path, begin_again):
        assert running(load(tmp_path)).deploy(restart=True, dry_run=True) == [PLANNED]
        assert asked == []
        (result,) = running(load(tmp_path)).deploy(restart=True, accept_forward=True)
    assert [(request.restart, request.accept_forward) for request in asked] == [(True, True)]
    assert result == replace(
        PLANNED,
        carried_out=True,
        steps=(
            replace(PLANNED.steps[0], outcome="runs again"),
            replace(PLANNED.steps[1], findings=(FAULT,)),
        ),
    )


ENDS: dict[str, tuple[Callable[[int], Any], str]] = {
    "it fails": (lambda connection: NewStartAnswer(connection).expect(["totals"]).fail([FAULT]), "HR601"),
    "it is killed": (os.close, "HR851"),
}


@pytest.mark.parametrize(("ends", "code"), ENDS.values(), ids=ENDS)
def test_a_new_start_that_does_not_come_about_is_named(tmp_path: Path, ends: Callable[[int], Any], code: str) -> None:
    with deploying(tmp_path, lambda connection, _: ends(connection)):
        (result,) = running(load(tmp_path)).deploy(restart=True)
    assert [finding.code for finding in result.errors] == [code]
    assert [step.query for step in result.steps] == ["totals", "other"]


def test_what_is_refused_begins_nothing_again(tmp_path: Path) -> None:
    refused = replace(PLANNED, findings=(FAULT,))
    with deploying(tmp_path, lambda connection, _: pytest.fail("it begins again"), refused):
        assert running(load(tmp_path)).deploy(restart=True) == [refused]


STATES: dict[str, tuple[QueryState, str]] = {
    "paused": (QueryState(query="q", state="paused"), "is paused"),
    "a source that is away": (QueryState(query="q", state="waiting for source"), "is waiting for source"),
    "finished": (QueryState(query="q", state="finished", healthy=True), "is finished"),
    "starting": (QueryState(query="q", state="starting"), ""),
    "a start that may fail yet": (QueryState(query="q", state="running"), ""),
}


@pytest.mark.parametrize(("state", "outcome"), STATES.values(), ids=STATES)
def test_a_query_counts_as_started_once_it_works_or_waits_for_others(state: QueryState, outcome: str) -> None:
    ours, theirs = socketpair()
    answer = NewStartAnswer(ours).expect(["q"])
    answer.changed(state)
    answer.answer()
    answer.answer()
    with os.fdopen(theirs, "rb") as sent:
        (line,) = sent.readlines()
    assert f'"outcome": "{outcome}"'.encode() in line


def socketpair() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def test_a_stop_ends_for_good_what_was_to_begin_again() -> None:
    new_start = NewStart(connection=7)
    for stop in (lambda one: one.ask(), lambda one: one.ask_for(now=False)):
        request = StopRequest()
        request.begin_again(new_start)
        assert (request.new_start, request.asked) == (new_start, 1)
        stop(request)
        assert (request.new_start, request.asked, request.now) == (None, 1, False)
        request.begin_again(new_start)
        assert request.new_start is None


EXECUTED_AGAIN = """
import os, socket, subprocess, sys, time
from headrace.cli.command_line import CommandLine
from headrace.control.new_start import NewStart

def has_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False

if "again" in sys.argv:
    CommandLine.of_process()
    deadline = time.monotonic() + 120
    while has_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    print("a child is left" if has_children() else "no child is left")
else:
    ours, _ = socket.socketpair()
    ours.set_inheritable(True)
    subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # It ends with the pipe, which this program alone has.
    environ = NewStart(connection=ours.fileno()).environ(os.environ)
    os.execve(sys.executable, [sys.executable, sys.argv[0], "again"], environ)
"""


def test_a_new_start_waits_for_the_processes_that_the_former_one_has_left(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(EXECUTED_AGAIN)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == "no child is left\n", done.stderr


def plan_by(code: str, **more: Any) -> DeployResult:
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    return plan_new_start(child, ["q", "gone"], **{"accept_forward": False, "is_stopping": lambda: False, **more})


JUDGED = """
import json
finding = {"code": "HR537", "what": "it changed", "fix": "", "where": {"file": "", "line": 0}, "severity": "error"}
judged = {"query": "q", "verdict": "forward", "from_batch": 3, "refused": [finding]}
new = {"query": "new", "verdict": "same", "from_batch": 0, "refused": []}
print("a warning of Java")
print(json.dumps({"queries": [judged, new]}))
"""
NO_PLANS = {
    "an error": (
        'import json; print(json.dumps({"event": "error", "findings": '
        '[{"code": "HR101", "what": "no YAML", "fix": "", "where": {"file": "", "line": 0}, "severity": "error"}]}))',
        ("HR101", "no YAML"),
    ),
    "a crash": ("import sys; sys.exit('no memory')", ("HR854", "ended with 1: no memory")),
}


def test_a_new_start_is_refused_as_its_plan_says() -> None:
    steps = plan_by(JUDGED).steps
    assert [(step.query, step.action, step.from_batch) for step in steps] == [
        ("q", "restart", 3),
        ("new", "start", 0),
        ("gone", "stop", 0),
    ]
    assert [finding.code for finding in steps[0].findings] == ["HR537"]
    assert plan_by(JUDGED, accept_forward=True).done


@pytest.mark.parametrize(("code", "named"), NO_PLANS.values(), ids=NO_PLANS)
def test_a_plan_that_cannot_be_made_refuses_the_new_start(code: str, named: tuple[str, str]) -> None:
    (finding,) = plan_by(code).findings
    assert (finding.code, named[1] in finding.what) == (named[0], True)


def test_a_plan_ends_with_the_application_that_waits_for_it() -> None:
    assert plan_by("import time; time.sleep(600)", is_stopping=lambda: True).findings[0].code == "HR854"
