"""Starting one side of a benchmark as a process of its own, and timing it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BASELINES = Path(__file__).parent / "baselines"
HEADRACE = (str(Path(sys.executable).parent / "headrace"),)


def environment() -> dict[str, str]:
    """The user's environment, with the same clock on both sides and no other setting of PySpark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**kept, "TZ": "UTC", "PYTHONUNBUFFERED": "1"}


def seconds(command: Sequence[str | Path], *, cwd: Path | None = None) -> float:
    """How long `command` takes as a whole; raises RuntimeError, with its log, when it fails."""
    begun = time.perf_counter()
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment(), capture_output=True, text=True)
    took = time.perf_counter() - begun
    if done.returncode != 0:
        raise _failure(command, done.stdout, done.stderr)
    return took


def seconds_to_line(command: Sequence[str | Path], line: str, *, cwd: Path | None = None) -> tuple[float, float]:
    """How long until `command` prints `line`, and until it has ended."""
    with tempfile.TemporaryFile("w+") as log:
        begun = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)), cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout
        met = next((time.perf_counter() - begun for output in process.stdout if output.strip() == line), None)
        process.communicate()
        ended = time.perf_counter() - begun
        if met is None or process.returncode != 0:
            log.seek(0)
            raise _failure(command, "", log.read())
    return met, ended


def lines_of(command: Sequence[str | Path], *, cwd: Path | None = None) -> list[str]:
    """The lines that `command` prints; raises RuntimeError, with its log, when it fails."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise _failure(command, done.stdout, done.stderr)
    return done.stdout.splitlines()


def lines_until(command: Sequence[str | Path], enough: Callable[[str], bool], *, cwd: Path | None = None) -> list[str]:
    """The lines that `command` prints up to the one that is `enough`; then it is asked to stop, and waited for."""
    lines: list[str] = []

    def note(line: str, process: int) -> bool:
        lines.append(line)
        return enough(line)

    pass_lines(command, note, cwd=cwd)
    return lines


def pass_lines(command: Sequence[str | Path], enough: Callable[[str, int], bool], *, cwd: Path | None = None) -> None:
    """Hand each line that `command` prints, and its process, to `enough` up to the one that is; then end it.

    Nothing of what it prints is kept.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            list(map(str, command)), cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout
        asked = False
        try:
            for line in process.stdout:
                if not asked and enough(line, process.pid):
                    process.send_signal(signal.SIGTERM)
                    asked = True
        except BaseException:
            process.terminate()
            raise
        process.wait()
        if not asked:
            log.seek(0)
            raise _failure(command, "", log.read())


def _failure(command: Sequence[str | Path], output: str, log: str) -> RuntimeError:
    return RuntimeError(f"{' '.join(map(str, command))} failed:\n{output[-2000:]}\n{log[-4000:]}")
