"""A child process of the demo that tells what it does as JSON lines on its stdout."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from headrace.spark.jvm.gateway import kill_all

Line: TypeAlias = Mapping[str, Any]


class Child:
    """`python -m ...` in a process group of its own; `lines` holds what it said and nobody has read yet."""

    def __init__(self, arguments: Sequence[str], *, log: Path) -> None:
        self.log = log
        self.lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stdout: IO[bytes] | None) -> None:
        for text in stdout or ():
            with contextlib.suppress(ValueError):
                self.lines.put(json.loads(text))

    def said(self) -> list[Line]:
        """The lines that have come since the last call."""
        lines: list[Line] = []
        with contextlib.suppress(queue.Empty):
            while True:
                lines.append(self.lines.get_nowait())
        return lines

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def kill(self) -> None:
        """End it and all that it started with SIGKILL, so that nothing of it can tidy up."""
        if self.exit_code is None:
            kill_all(self._process.pid)
        self._process.wait()
        self._reader.join(timeout=1)

    def stop(self, *, within: float) -> int:
        """Ask it to end, as SIGTERM does, and kill it when it has not done so `within` seconds; its exit code."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                self._process.wait(timeout=within)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(timeout=1)
        return self._process.wait()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let no SIGINT or SIGTERM come between a child's start and the record of it; KeyboardInterrupt comes after."""
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda got, _: caught.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt


def run_visibly(arguments: Sequence[str], *, patience: float = 20) -> int:
    """Run `python -m ...` on our own stdout and stderr and give its exit code.

    When we are interrupted it is asked to end, as by SIGTERM, and killed when `patience` seconds are over.
    """
    started: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-m", *arguments]
    try:
        with uninterrupted():
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True))
        return started[0].wait()
    except KeyboardInterrupt:
        for process in started:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=patience)
        raise
    finally:
        for process in started:
            if process.poll() is None:
                kill_all(process.pid)
                process.wait()
