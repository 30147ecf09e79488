"""A run whose process is gone differs from one that lives, also when its number was given away again."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.contract.observer import QueryState, State
from headrace.generations import driver_lock
from headrace.history import History
from headrace.history.pages import runs_of

pytestmark = pytest.mark.plain
RUN = """
import os, sys, time
from headrace.history import History
from headrace.contract.observer import QueryState
history = History.open(sys.argv[1])
run = history.begin_run("counts", pid=os.getpid(), mode="append", trigger="once", sink="memory", generation=1)
history.state(QueryState(query="counts", state="running"), run)
print("running", flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def driver(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", RUN, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def state(path: Path) -> str:
    with History.open(path, read_only=True) as history:
        return history.statuses()[0].state


def test_a_killed_process_is_seen_before_and_after_its_parent_looks(driver: subprocess.Popen[str], path: Path) -> None:
    assert state(path) == "running"
    driver.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
    assert state(path) == "killed"
    driver.wait()
    assert state(path) == "killed"


def test_a_number_that_was_given_away_again_is_another_process(driver: subprocess.Popen[str], path: Path) -> None:
    with sqlite3.connect(path) as db:
        for table in ("runs", "states"):
            db.execute(f"UPDATE {table} SET pid = ?", (os.getpid(),))
    assert state(path) == "killed"


def test_a_restart_after_a_kill_is_counted(driver: subprocess.Popen[str], path: Path) -> None:
    driver.kill()
    driver.wait()
    with History.open(path) as history:
        history.begin_run("counts", pid=os.getpid(), mode="append", trigger="once", sink="memory", generation=1)
        (status,) = history.statuses()
    assert (status.state, status.error) == ("starting", None)


@pytest.mark.parametrize("finds", ["a look", "the next start"])
def test_a_killed_process_is_one_event_for_the_first_that_sees_it(
    driver: subprocess.Popen[str], path: Path, finds: str
) -> None:
    with History.open(path) as history:
        history.note_killed()
        assert history.events() == []
        driver.kill()
        driver.wait()
        for _ in range(2):
            if finds == "a look":
                with History.open(path, read_only=True) as look:
                    look.note_killed()
            else:
                history.state(QueryState(query="counts", state="waiting"))
        (event,) = history.events()
        assert (event.kind, event.query, event.detail["pid"]) == ("killed", "counts", driver.pid)
        (run,) = runs_of(history, "counts")
        assert (run["state"], run["ended"] is None) == ("killed", False)
        expected = "killed" if finds == "a look" else "waiting"
        assert history.statuses()[0].state == expected


def test_a_process_that_runs_the_query_keeps_its_state_from_others_until_they_start(
    driver: subprocess.Popen[str], path: Path
) -> None:
    states: list[State] = ["waiting", "failed", "starting", "failed"]
    with History.open(path) as history:
        for state, seen in zip(states, ("running", "running", "starting", "failed"), strict=True):
            history.state(QueryState(query="counts", state=state))
            assert history.statuses()[0].state == seen


@pytest.mark.parametrize(("silent", "expected"), [(0, "running"), (120, "killed")])
def test_a_run_on_another_machine_is_judged_by_its_silence(
    driver: subprocess.Popen[str], path: Path, silent: int, expected: str
) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE runs SET host = 'elsewhere', seen = seen - ?, started = started - ?", (silent, silent))
        db.execute("UPDATE states SET host = 'elsewhere', seen = seen - ?", (silent,))
    assert state(path) == expected


HERE = [driver_lock._from_proc] * Path("/proc/self/stat").exists() + [driver_lock._from_ps] * bool(shutil.which("ps"))


@pytest.mark.parametrize("mark", HERE, ids=lambda mark: mark.__name__)
def test_a_process_has_a_lasting_mark_until_it_ends(
    driver: subprocess.Popen[str], mark: Callable[[int], str | None]
) -> None:
    assert mark(driver.pid) is not None
    assert mark(driver.pid) == mark(driver.pid)
    driver.kill()
    os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
    assert mark(driver.pid) is None
    assert mark(2**22 + 1) is None


def test_two_processes_have_different_marks(driver: subprocess.Popen[str]) -> None:
    if Path("/proc/self/stat").exists():
        assert driver_lock.birth(os.getpid()) != driver_lock.birth(driver.pid)
