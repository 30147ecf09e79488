"""Other terminals reach a running application by a socket that only its user can open."""

from __future__ import annotations

import json
import os
import resource
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from headrace.api import load
from headrace.cli import main
from headrace.contract import Observer
from headrace.contract.observer import QueryState
from headrace.control.board import Board, Order, OrderAnswer, Orders
from headrace.control.client import NotRunning, RunningApplications, applications, find_running
from headrace.control.server import LONGEST_PATH, ControlServer, control_directory, sockets
from headrace.errors import Finding
from headrace.generations.driver_lock import birth
from headrace.runner.stop import StopRequest
from headrace.runner.supervise import control_run
from tests.registered import layout_in
from tests.waiting import until

pytestmark = pytest.mark.plain


def write_project(root: Path) -> None:
    (root / "headrace.yml").write_text(
        "name: p\nsources: {events: {rate: {}}}\n"
        "queries: {totals: {select: SELECT * FROM events, sink: console}, "
        "other: {select: SELECT * FROM events, sink: console}}\n"
    )


@contextmanager
def serving(
    storage: Path, board: Board, orders: Orders, stop: Callable[[bool], None] = print, *, owns_process: bool = False
) -> Iterator[ControlServer]:
    storage.mkdir(parents=True, exist_ok=True)
    server = ControlServer(storage, project="p", board=board, orders=orders, stop=stop, owns_process=owns_process)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def board() -> Board:
    made = Board()
    made.post(QueryState(query="totals", state="running"))
    return made


@pytest.mark.parametrize("temporary", ["t", "t" * LONGEST_PATH], ids=["", "path of temporary files too long as well"])
@pytest.mark.parametrize("deep", ["s", "s" * LONGEST_PATH], ids=["short path", "path too long for a socket"])
def test_the_socket_is_for_its_user_alone_and_goes_with_the_run(
    tmp_path: Path, board: Board, deep: str, temporary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / deep
    (tmp_path / temporary).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / temporary))
    with serving(storage, board, Orders()):
        ((pid, path),) = sockets(storage)
        assert pid == os.getpid()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert {stat.S_IMODE(place.stat().st_mode) for place in (path.parent, control_directory(storage))} == {0o700}
        ((application,), _) = applications(storage)
        assert (application.pid, application.birth, list(application.queries)) == (
            os.getpid(),
            birth(os.getpid()),
            ["totals"],
        )
    assert list(sockets(storage)) == []
    assert not path.exists()


@pytest.mark.parametrize("verb", ["stop", "pause", "resume", "restart"])
def test_an_order_is_answered_by_who_carries_it_out(tmp_path: Path, board: Board, verb: str) -> None:
    orders, taken = Orders(), []

    def carry_out() -> None:
        order = orders.take()
        assert order is not None
        taken.append(order)
        order.succeed("it is done")

    orders.on_order(carry_out)
    there = RunningApplications(tmp_path)
    methods: dict[str, Callable[[str], OrderAnswer]] = {
        "stop": lambda query: there.stop(query)[0],
        "pause": there.pause,
        "resume": there.resume,
        "restart": there.restart,
    }
    with serving(tmp_path, board, orders):
        answer = methods[verb]("totals")
    assert (answer.done, answer.said) == (True, "it is done")
    assert [(order.verb, order.query) for order in taken] == [(verb, "totals")]
    assert taken[0].by


def test_what_is_ordered_too_late_is_answered_all_the_same() -> None:
    orders = Orders()
    early = orders.give(Order(verb="stop", query="totals"))
    orders.close()
    late = orders.give(Order(verb="pause", query="totals"))
    assert [order.answer.result(0).finding.code for order in (early, late)] == ["HR851", "HR851"]  # type: ignore[union-attr]


def test_stop_waits_for_the_end_and_those_that_follow_hear_of_everything_before(tmp_path: Path, board: Board) -> None:
    asked, heard, follows = [], [], threading.Event()

    def follow() -> None:
        for event in RunningApplications(tmp_path).follow():
            heard.append(event["event"])
            follows.set()

    def stop(now: bool) -> None:
        asked.append(now)
        server.publish("ended", {"query": "totals"})
        board.close()

    follower = threading.Thread(target=follow)
    with serving(tmp_path, board, Orders(), stop) as server:
        follower.start()
        assert follows.wait(10)
        (answer,) = RunningApplications(tmp_path).stop(now=True)
        assert answer.said == "the application has stopped"
    follower.join(10)
    assert (asked, heard) == ([True], ["following", "ended"])


def test_stops_that_come_at_once_ask_as_one(tmp_path: Path) -> None:
    write_project(tmp_path)
    request, notes = StopRequest(), list[str]()
    with control_run(load(tmp_path), Orders(), request, Observer(), owns_process=False):
        (running,) = find_running(tmp_path / ".headrace")
        asking = [threading.Thread(target=lambda: running.stop(notify=notes.append)) for _ in range(8)]
        for thread in asking:
            thread.start()
        until("word to all but the first", lambda: len(notes) == len(asking) - 1, pause=0.01)
        assert request
        assert not request.now
        request.board.close()
        for thread in asking:
            thread.join(20)
    assert notes == ["the application is already stopping"] * 7
    assert request.asked == 1


def drip(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.send(b" "):
            time.sleep(0.05)


@pytest.mark.parametrize("silent", ["idle", "slow", "follows and reads nothing"])
def test_connections_that_ask_nothing_keep_no_other_out(
    tmp_path: Path, board: Board, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.control.server.REQUEST_SECONDS", 0.5)
    monkeypatch.setattr("headrace.control.server.SEND_SECONDS", 0.5)
    with serving(tmp_path, board, Orders()) as server, ExitStack() as opened:
        ((_, path),) = sockets(tmp_path)
        others = [opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(200)]
        for at, client in enumerate(others):
            while client.connect_ex(str(path)):
                time.sleep(0.01)
            if silent == "slow":
                threading.Thread(target=drip, args=(client,), daemon=True).start()
            elif silent != "idle" and at % 10 == 0:
                client.sendall(b'{"do": "follow"}\n')
        assert [application.pid for application in applications(tmp_path)[0]] == [os.getpid()]
        until("follower", lambda: not silent.startswith("follows") or server.is_followed, pause=0.01)

        def are_let_go() -> bool:
            # More than the kernel holds for somebody who does not read.
            server.publish("batch", {"text": "x" * 100_000})
            served = any(thread.name == "control of one" for thread in threading.enumerate())
            return not server.is_followed and not served

        until("end of the connections", are_let_go, pause=0.01)


def test_the_socket_outlives_a_process_without_a_file_to_open(tmp_path: Path, board: Board) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(tmp_path, board, Orders()), ExitStack() as opened:
        ((_, path),) = sockets(tmp_path)
        first = opened.enter_context(socket.socket(socket.AF_UNIX))
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            first.connect(str(path))
            time.sleep(0.3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(applications(tmp_path)[0]) == 1


STOPPED = """
import sys, time
from pathlib import Path
from headrace.api import load
from headrace.control.board import Orders
from headrace.runner.supervise import control_run
from headrace.contract import Observer
from headrace.runner.stop import StopRequest, end_process, stop_on_signals

request = StopRequest()
with control_run(load(Path(sys.argv[1])), Orders(), request, Observer(), owns_process=True):
    with stop_on_signals(request, end_now=end_process):
        print("runs", flush=True)
        while not request.now:
            time.sleep(0.05)
            Path(sys.argv[1], "asked").write_text(str(request.asked))
    request.board.close()
print(request.asked, flush=True)
"""


def test_a_process_is_stopped_once_however_many_stops_there_are(tmp_path: Path) -> None:
    write_project(tmp_path)
    running = subprocess.Popen([sys.executable, "-c", STOPPED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    command = [sys.executable, "-m", "headrace", "stop", "-C", str(tmp_path)]
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "runs\n"
        logs = [tmp_path / f"{number}.log" for number in range(3)]
        stops = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log.open("wb")) for log in logs]
        # The one that came first waits silently.
        until("word to two of them", lambda: sum(bool(log.read_text()) for log in logs) == 2)
        already = f"process {running.pid} is already stopping; waiting for its end\n"
        time.sleep(1.0)
        assert sorted(log.read_text() for log in logs) == ["", already, already]
        assert ((tmp_path / "asked").read_text(), running.poll()) == ("1", None)
        assert subprocess.run([*command, "--now"], timeout=60, check=False).returncode == 0
        assert [process.wait(60) for process in (running, *stops)] == [0] * 4
        assert running.stdout.read() == "2\n"
    finally:
        running.kill()
        running.wait()


def test_a_process_that_does_not_end_is_named(tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.control.client.EXIT_SECONDS", 0.1)
    with serving(tmp_path, board, Orders(), lambda _: board.close(), owns_process=True):
        answer = find_running(tmp_path)[0].stop()
    assert answer.finding is not None
    assert (answer.finding.code, answer.finding.fix) == ("HR853", f"end it: kill -9 {os.getpid()}")


@contextmanager
def silent(storage: Path, pid: int) -> Iterator[None]:
    """The socket of a process that takes connections and does not answer."""
    home = control_directory(storage)
    home.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / f"{pid}.sock"))
        listening.listen()
        yield


def test_a_process_that_does_not_answer_is_reported_and_not_passed_over(
    tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.control.client.HELLO_SECONDS", 0.3)
    with silent(tmp_path, 1):
        for ask in (find_running, lambda storage: RunningApplications(storage).stop()):
            with pytest.raises(NotRunning, match=r"HR853.*process 1 has not answered"):
                ask(tmp_path)
        with serving(tmp_path, board, Orders(), lambda _: board.close()):
            with pytest.raises(NotRunning, match="HR853"):
                find_running(tmp_path, "other")
            assert [application.pid for application in find_running(tmp_path)] == [os.getpid()]
            stopped, not_reached = RunningApplications(tmp_path).stop()
    assert stopped == OrderAnswer(said="the application has stopped")
    assert not_reached.finding is not None
    assert (not_reached.finding.code, "kill -9 1" in not_reached.finding.fix) == ("HR853", True)


def test_a_run_without_a_socket_and_a_log_is_warned_once_of_each(tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / ".headrace").write_text("a file where the directory should be")
    notes: list[str] = []

    class Noting(Observer):
        def note(self, finding: Finding) -> None:
            notes.append(finding.code)

    with control_run(load(tmp_path), Orders(), StopRequest(), Noting(), owns_process=False):
        pass
    assert notes == ["HR544", "HR856"]


def test_a_socket_of_a_dead_process_is_removed_and_nothing_is_said_to_run(tmp_path: Path) -> None:
    home = control_directory(tmp_path)
    home.mkdir()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(home / "999999.sock"))
    dead.close()
    (home / "999998.place").write_text("/tmp/headrace-control-gone/999998.sock")
    with pytest.raises(NotRunning, match="HR850"):
        find_running(tmp_path)
    assert list(sockets(tmp_path)) == []


@pytest.mark.parametrize(
    ("request_line", "code"), [(b"[]\n", "HR852"), (b"{\n", "HR852"), (b'{"do": "explode", "query": "x"}\n', "HR852")]
)
def test_what_is_no_request_is_refused(tmp_path: Path, board: Board, request_line: bytes, code: str) -> None:
    with serving(tmp_path, board, Orders()):
        ((_, path),) = sockets(tmp_path)
        asking = socket.socket(socket.AF_UNIX)
        asking.connect(str(path))
        asking.sendall(request_line)
        assert json.loads(asking.makefile().readline())["finding"]["code"] == code
        asking.close()


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "table"])
def test_status_follows_the_application_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], board: Board, as_json: bool
) -> None:
    write_project(tmp_path)
    noted = {"finding": Finding(code="HR680", what="it falls behind").as_dict()}
    with serving(tmp_path / ".headrace", board, Orders()) as server:

        def happen() -> None:
            until("follower", lambda: server.is_followed, pause=0.01)
            server.publish("batch", {"query": "totals", "batch": 7})
            server.publish("note", noted)
            server.close()

        threading.Thread(target=happen).start()
        assert main(["status", "--follow", "-C", str(tmp_path), *(["--json"] if as_json else [])]) == 0
    output = capsys.readouterr().out
    if as_json:
        lines = [json.loads(line) for line in output.splitlines()]
        assert [line.get("event", "status") for line in lines] == ["following", "batch", "note", "status"]
        assert lines[1]["batch"] == 7
    else:
        assert "HR680: it falls behind" in output
        assert "never started" in output
    assert main(["status", "--follow", "-C", str(tmp_path)]) == 1
    assert "HR850" in capsys.readouterr().err


HOLDER = {"pid": os.getpid(), "birth": birth(os.getpid()), "host": socket.gethostname(), "started": "now"}


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (None, "no application runs out of"),
        (HOLDER, f"process {os.getpid()} runs query 'totals', and it has no socket"),
        ({**HOLDER, "birth": "another"}, "no application runs out of"),
        ({**HOLDER, "host": "far-away"}, "on far-away runs query 'totals', and orders do not reach another machine"),
    ],
    ids=["nothing", "without a socket", "a number given again", "another machine"],
)
def test_commands_say_in_a_sentence_what_runs_and_what_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], board: Board, holder: dict[str, object] | None, words: str
) -> None:
    write_project(tmp_path)
    lock = layout_in(tmp_path / ".headrace", "totals").folder / "driver.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    if holder is not None:
        lock.write_text(json.dumps(holder))
    for command in (["stop"], ["pause", "totals"], ["restart", "totals"]):
        assert main([*command, "-C", str(tmp_path)]) == 1
        errors = capsys.readouterr().err
        assert "HR850" in errors
        assert words in errors
    assert main(["pause", "totls", "-C", str(tmp_path)]) == 2
    assert "HR091" in capsys.readouterr().err
    assert main(["stop", "totals", "--now", "-C", str(tmp_path)]) == 2
    with serving(tmp_path / ".headrace", board, Orders()):
        assert main(["pause", "other", "-C", str(tmp_path)]) == 1
    assert "does not run query 'other'; it has totals" in capsys.readouterr().err
