"""One driver runs a query: a second one is refused before Spark starts, and a dead one is not an obstacle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.api import load
from headrace.cli.entry import main
from headrace.errors import CheckFailed
from headrace.generations import driver_lock
from headrace.generations.log import history_file
from headrace.history import History
from tests.runner.projects import write_project

pytestmark = pytest.mark.plain
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="t", key=["name"]), mode="update", trigger=hr.available_now)
def counts(events):
    return events.groupBy("name").count()
"""
HOLDER = """
import sys
from headrace.api import load
from headrace.generations import driver_lock

project = load(sys.argv[1])
lock = driver_lock.take(project, project.queries["counts"])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_project(tmp_path / "p", BODY)


@contextmanager
def holder(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock of the query."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_driver_is_refused_before_spark_starts(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with holder(root) as other:
        assert main(["run", "-C", str(root)]) == 1
    errors = capsys.readouterr().err
    assert f"HR526: query 'counts' is already running as process {other.pid} since 20" in errors
    assert errors.count("HR526") == 1
    assert not history_file(load(root).storage).exists(), "the history belongs to the driver that runs"


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_ends_with_its_process(root: Path, ends: signal.Signals) -> None:
    project = load(root)
    with holder(root) as other:
        with pytest.raises(CheckFailed):
            driver_lock.take(project, project.queries["counts"])
        other.send_signal(ends)
        other.wait()
        lock = driver_lock.take(project, project.queries["counts"])
    assert lock is not None
    lock.release()


def test_a_query_that_is_started_again_in_its_process_keeps_the_lock_until_both_have_ended(root: Path) -> None:
    project = load(root)
    query = project.queries["counts"]
    first, second = driver_lock.take(project, query), driver_lock.take(project, query)
    assert first is not None
    assert second is not None
    first.release()
    first.release()
    command = [sys.executable, "-c", HOLDER, str(root)]
    refused = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert f"already running as process {os.getpid()} since" in refused.stderr
    second.release()
    assert subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout == "held\n"


def test_status_shows_whose_error_a_fence_is(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from headrace.errors import Finding

    storage = load(root).storage
    storage.mkdir()
    with History.open(history_file(storage)) as history:
        older = history.begin_run("counts", pid=77, mode="update", trigger="", sink="sqlite", generation=1)
        history.begin_run("counts", pid=os.getpid(), mode="update", trigger="", sink="sqlite", generation=1)
        newer = Finding(code="HR409", what="a newer driver runs query 'counts'")
        history.end_run(older, "failed", newer, fenced=True)
    assert main(["status", "-C", str(root)]) == 1
    assert "counts (process 77, which has ended): headrace HR409: a newer driver" in capsys.readouterr().out
