"""The whole demo, shortened: its driver is really killed, and the result is proved."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.demo.generator import events
from headrace.demo.starter import LANDING, SEED

pytestmark = pytest.mark.crash


def test_the_driver_is_killed_goes_on_and_the_result_is_proved(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", str(tmp_path / "demo"), "--seconds", "8", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert any("driver killed with SIGKILL at batch" in line.get("sentence", "") for line in lines)
    (verdict,) = [line for line in lines if "rows_expected" in line]
    landed = sum(1 for path in (tmp_path / "demo" / LANDING).glob("*.json") for _ in path.open())
    assert verdict["sentence"].startswith("correct: equal to the batch query over the same input")
    assert verdict["rows_read"] == landed == 32_000
    with sqlite3.connect(tmp_path / "demo/result.db") as database:
        (counted,) = database.execute("SELECT sum(count) FROM action_counts").fetchone()
    late = sum(event.kind == "late" for event in events(SEED, landed))
    assert landed - late <= counted <= landed
    assert lines[-1]["event"] == "end"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc; run it on Linux")
def test_ctrl_c_ends_the_demo_and_all_that_it_started(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "demo", str(tmp_path / "demo"), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "events a second land" in line:
            break
    assert len(still_running(str(tmp_path))) >= 2
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    process.stdout.close()
    assert still_running(str(tmp_path)) == []


def still_running(text: str) -> list[str]:
    """The command lines of this machine's processes that hold `text`."""
    commands = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            commands.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in commands if text in line]
