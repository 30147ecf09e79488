"""Starting one side of a benchmark as a process of its own, and timing it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BASELINES = Path(__file__).parent / "baselines"
HEADRACE = (sys.executable, "-m", "headrace")


def environment() -> dict[str, str]:
    """The user's environment, with the same clock on both sides and nothing that tells PySpark otherwise."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**kept, "TZ": "UTC", "PYTHONUNBUFFERED": "1"}


def seconds(command: Sequence[str | Path], *, cwd: Path | None = None) -> float:
    """How long `command` takes as a whole; raises RuntimeError, with its log, when it fails."""
    begun = time.perf_counter()
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment(), capture_output=True, text=True)
    took = time.perf_counter() - begun
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return took


def seconds_to_line(command: Sequence[str | Path], line: str, *, cwd: Path | None = None) -> tuple[float, float]:
    """How long until `command` prints `line`, and until it has ended."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)), cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    for said in process.stdout:
        if said.strip() == line:
            break
    to_line = time.perf_counter() - begun
    _, log = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{log[-4000:]}")
    return to_line, time.perf_counter() - begun


def lines_until(command: Sequence[str | Path], enough: Callable[[str], bool], *, cwd: Path | None = None) -> list[str]:
    """The lines that `command` prints up to the one that is `enough`; then it is asked to stop, and waited for."""
    process = subprocess.Popen(
        list(map(str, command)), cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    lines, asked = [], False
    for line in process.stdout:
        lines.append(line)
        if not asked and enough(line):
            process.send_signal(signal.SIGTERM)
            asked = True
    _, log = process.communicate()
    if not asked:
        raise RuntimeError(f"{' '.join(map(str, command))} ended early:\n{''.join(lines)[-2000:]}\n{log[-4000:]}")
    return lines
