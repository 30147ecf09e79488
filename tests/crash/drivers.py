"""Drivers that die at a chosen moment, to show that a result does not depend on how often they did.

`python -m tests.crash.drivers PROJECT --at inside-transaction:3` runs a project and kills its own driver with
SIGKILL at that boundary of that batch; without `--at` it runs to the end. With `--together` it dies when each of its
queries is there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from headrace.checkpoint.directory import Part
from headrace.contract import Boundary
from headrace.spark.jvm.gateway import PROC, descendants, kill_all
from tests.registered import layout_in

Moment: TypeAlias = Boundary | Literal["after-commit"]
ROOT = Path(__file__).resolve().parent.parent.parent
MOMENTS: tuple[Moment, ...] = (*get_args(Boundary), "after-commit")


@dataclass(frozen=True)
class KillAt:
    """Kill the driver at `moment` of `batch`, as soon as the first of its queries is there.

    The first three moments lie around the data's transaction in the sink; `after-commit` is as soon as Spark's commit
    file of the batch is there. Source: MicroBatchExecution.runBatch, which calls the sink and then writes the file.
    """

    moment: Moment
    batch: int

    @classmethod
    def parse(cls, text: str) -> KillAt:
        """Read `moment:batch`; raises ValueError."""
        moment, _, batch = text.partition(":")
        if moment not in MOMENTS:
            raise ValueError(f"'{moment}' is not a moment; known: {', '.join(MOMENTS)}")
        return cls(moment, int(batch))

    def __str__(self) -> str:
        return f"{self.moment}:{self.batch}"

    def reached(self, boundary: Boundary, batch: int) -> None:
        """The hook for `headrace.run(reached=...)`."""
        if (boundary, batch) == (self.moment, self.batch):
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, checkpoint: Path) -> None:
        """Kill this process as soon as the commit file of the batch is in `checkpoint`."""
        commit = checkpoint / Part.COMMITS / str(self.batch)

        def wait() -> None:
            while not commit.exists():
                time.sleep(0.002)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=wait, daemon=True).start()


class KillTogether:
    """Kill the driver when a given number of queries has come to a boundary; each waits there for the last."""

    def __init__(self, kill: KillAt, queries: int) -> None:
        self._kill, self._missing, self._lock = kill, queries, threading.Lock()

    def reached(self, boundary: Boundary, batch: int) -> None:
        """The hook for `headrace.run(reached=...)`."""
        if (boundary, batch) != (self._kill.moment, self._kill.batch):
            return
        with self._lock:
            self._missing -= 1
            last = self._missing == 0
        if last:
            self._kill.reached(boundary, batch)
        threading.Event().wait()


def kill_at_step(step: str) -> Callable[[str], None]:
    """The hook for a command's `reached`: it kills this process with SIGKILL at that step."""

    def reached(now: str) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


class Driver:
    """A driver in a process group of its own, so that it can be killed with its JVM."""

    def __init__(self, project: Path, *, kill: KillAt | None = None, arguments: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "tests.crash.drivers", str(project), *arguments]
        if kill is not None:
            command += ["--at", str(kill)]
        self.started = time.monotonic()
        self._output = open(project / ".driver.log", "ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
            env={**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONPATH": os.pathsep.join(_import_path())},
        )

    def wait(self, timeout: float = 120) -> int:
        """Wait for the end; returns the exit code, negative for a signal.

        On a time-out the log gets what each thread of the driver and of its JVM is at, and both are killed.
        """
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._dump_threads()
            self.kill()
            raise
        finally:
            self._output.close()

    def _dump_threads(self) -> None:
        """Let the JVM, by SIGQUIT, and Python, by SIGABRT, write their threads' stacks into the log."""
        for sent, children_only in ((signal.SIGQUIT, True), (signal.SIGABRT, False)):
            with contextlib.suppress(ProcessLookupError, OSError):
                for pid in _java_children(self.process.pid) if children_only else (self.process.pid,):
                    os.kill(pid, sent)
            time.sleep(2)

    def kill(self) -> None:
        """SIGKILL to the driver and its JVM."""
        kill_all(self.process.pid)
        self.process.wait(60)
        self._output.close()

    def kill_after(self, seconds: float) -> bool:
        """Kill after `seconds` from the start; False when the driver had ended by itself before."""
        try:
            self.process.wait(max(0.0, self.started + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return True
        self._output.close()
        return False


def _import_path() -> Iterator[str]:
    """Where a driver finds this module, wherever it is started, and what was there before."""
    yield str(ROOT)
    if "PYTHONPATH" in os.environ:
        yield os.environ["PYTHONPATH"]


def _java_children(driver: int) -> Iterator[int]:
    """The JVMs that come from a process, where the system has /proc."""
    for pid in descendants(driver):
        with contextlib.suppress(OSError):
            if (PROC / str(pid) / "comm").read_text().strip() == "java":
                yield pid


def moments(seed: int, count: int, *, longest: float) -> Iterator[float]:
    """`count` random lengths of a driver's life in seconds, the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        yield chance.uniform(0.0, longest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a project, to its end or to the moment at which it is to die."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.drivers", description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("--at", type=KillAt.parse, metavar="MOMENT:BATCH")
    parser.add_argument("--query", action="append")
    parser.add_argument("--together", action="store_true", help="wait until each query is at that boundary")
    options = parser.parse_args(arguments)

    from headrace.api import load, run
    from headrace.errors import HeadraceError
    from headrace.generations.log import newest_of

    try:
        project = load(options.project)
        kill: KillAt | None = options.at
        if kill is not None and kill.moment == "after-commit":
            for name in options.query or project.queries:
                layout = newest_of(layout_in(project.storage, name))
                kill.watch(layout.checkpoint)
        reached = kill.reached if kill is not None else None
        if kill is not None and options.together:
            reached = KillTogether(kill, len(options.query or project.queries)).reached
        result = run(project, options.query, reached=reached)
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for outcome in result.outcomes:
        print(outcome.query, outcome.state, outcome.batches, outcome.rows, outcome.finding or "", flush=True)
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
