"""A `headrace run` that is fed a file at a time, and a cluster to run it on."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import HEADRACE, environment, lines_of
from headrace.cluster import daemons

PATIENCE_SECONDS = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Batch(NamedTuple):
    """What a batch took, in seconds: by the clock, and of the cores' time in the driver and in the executors."""

    seconds: float
    driver_cpu: float
    executors_cpu: float


@dataclass
class Driver:
    """A run of the project in `place`; on the cluster of `home`, if it has one."""

    place: Path
    home: Path | None
    process: subprocess.Popen[str]
    batches: queue.Queue[dict[str, object] | None] = field(default_factory=queue.Queue)
    landed: int = 0

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def batch(self, query: str, file: Path) -> Batch:
        """Let `file` land, and wait for the batch of `query` that reads it."""
        begun = self._cpu()
        self.landed += 1
        hidden = self.place / f"landing/{query}/.{self.landed:06d}"
        shutil.copyfile(file, hidden)
        hidden.rename(hidden.with_name(f"{self.landed:06d}{file.suffix}"))
        event = self._next(lambda event: event["query"] == query and bool(event["rows"]))
        ended = self._cpu()
        return Batch(float(str(event["duration_ms"])) / 1000, ended[0] - begun[0], ended[1] - begun[1])

    def await_started(self, queries: int) -> None:
        for _ in range(queries):
            self._next(lambda event: event["event"] == "started")

    def _next(self, wanted: object) -> dict[str, object]:
        assert callable(wanted)
        ends = time.monotonic() + PATIENCE_SECONDS
        while (left := ends - time.monotonic()) > 0:
            try:
                event = self.batches.get(timeout=left)
            except queue.Empty:
                break
            if event is None:
                break
            if event["event"] == "ended":
                raise RuntimeError(f"{event}\n{self.log()}")
            if wanted({"query": None, "rows": None, **event}):
                return event
        raise RuntimeError(f"nothing more came from {self.place}:\n{self.log()}")

    def log(self) -> str:
        return (self.place / "log").read_text(errors="replace")[-4000:]

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.batches.put(json.loads(line))
        self.batches.put(None)

    def _cpu(self) -> tuple[float, float]:
        parents = _parents()
        record = daemons.read(self.home) if self.home else None
        pids = [daemon.pid for daemon in record.daemons] if record else []
        return _cpu_seconds(parents, [self.process.pid]), _cpu_seconds(parents, pids)


@contextmanager
def driver(place: Path, home: Path | None, *, landings: Sequence[str]) -> Iterator[Driver]:
    """The project in `place` as it runs, with an empty directory for each query's files."""
    for name in landings:
        (place / "landing" / name).mkdir(parents=True)
    environ = environment()
    if home is not None:
        environ[daemons.HOME_VARIABLE] = str(home)
    with (place / "log").open("w") as log:
        process = subprocess.Popen(
            [*HEADRACE, "run", "--json"], cwd=place, env=environ, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        running = Driver(place, home, process)
        running.await_started(len(landings))
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def cluster(home: Path, workers: int) -> Iterator[str]:
    """The master of a cluster with workers of one core each."""
    shape = ("--workers", str(workers), "--cores", "1", "--memory", "1g")
    try:
        lines_of([*HEADRACE, "cluster", "start", *shape, "--port", "0", "--web-port", "0", "--home", home])
        yield str(json.loads("".join(lines_of([*HEADRACE, "cluster", "status", "--json", "--home", home])))["url"])
    finally:
        lines_of([*HEADRACE, "cluster", "stop", "--home", home])


def _parents() -> Mapping[int, int]:
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    return parents


def _cpu_seconds(parents: Mapping[int, int], pids: Iterable[int]) -> float:
    """What these processes and all below them have used of the cores' time, with children that have ended."""
    members = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    total = 0
    for pid in members:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / _TICKS
