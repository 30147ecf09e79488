"""A run whose process is gone is told from one that lives, also when its number was given away again."""

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

from headrace.history import History, processes

pytestmark = pytest.mark.plain
RUN = """
import os, sys, time
from headrace.history import History
history = History.open(sys.argv[1])
run = history.begin_run("counts", pid=os.getpid(), mode="append", trigger="once", sink="memory", generation=1)
history.state(run, "running")
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
        db.execute("UPDATE runs SET pid = ?", (os.getpid(),))
    assert state(path) == "killed"


def test_a_restart_after_a_kill_is_counted(driver: subprocess.Popen[str], path: Path) -> None:
    driver.kill()
    driver.wait()
    with History.open(path) as history:
        history.begin_run("counts", pid=os.getpid(), mode="append", trigger="once", sink="memory", generation=1)
        (status,) = history.statuses()
    assert (status.state, status.restarts, status.error) == ("starting", 1, None)


@pytest.mark.parametrize(("silent", "expected"), [(0, "running"), (120, "killed")])
def test_a_run_on_another_machine_is_judged_by_its_silence(
    driver: subprocess.Popen[str], path: Path, silent: int, expected: str
) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE runs SET host = 'elsewhere', seen = seen - ?", (silent,))
    assert state(path) == expected


HERE = [processes._from_proc] * Path("/proc/self/stat").exists() + [processes._from_ps] * bool(shutil.which("ps"))


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
        assert processes.birth(os.getpid()) != processes.birth(driver.pid)
