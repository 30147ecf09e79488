"""A cluster of this machine with a driver that runs there, and what can be done to both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cli.entry import main
from headrace.cluster import control
from headrace.cluster.daemons import HOME_VARIABLE, Daemon
from headrace.generations.driver_lock import birth
from headrace.spark.jvm.gateway import kill_all
from tests.waiting import PATIENCE_SECONDS, until


@dataclass(kw_only=True)
class ClusterScene:
    """A cluster in `home`, a project in `root`, and the drivers of it that were started."""

    home: Path
    root: Path
    log: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def start_cluster(self, *words: str) -> None:
        """Start it, or bring back what has died of it."""
        assert main(["cluster", "start", "--home", str(self.home), "--port", "0", "--web-port", "0", *words]) == 0
        self.environment |= {"MASTER": control.require(self.home).url, HOME_VARIABLE: str(self.home)}

    def stop_cluster(self) -> None:
        """End everything."""
        for process in self.processes:
            if process.poll() is None:
                kill_all(process.pid)
                process.wait(PATIENCE_SECONDS)
        control.stop(self.home)
        until("end of the executors", lambda: self.executors() == [])

    def start(self, *words: str, more: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a command of Headrace's over the project."""
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "headrace", *words, "-C", str(self.root)]
            made = subprocess.Popen(command, stdout=log, stderr=log, env={**self.environment, **(more or {})})
        self.processes.append(made)
        return made

    def end(self, driver: subprocess.Popen[bytes]) -> int:
        """Let a driver finish its batches and end; returns its exit code."""
        driver.send_signal(signal.SIGTERM)
        return driver.wait(PATIENCE_SECONDS)

    def executors(self) -> list[int]:
        """The JVMs that the workers have started for applications, the oldest first.

        Process ids begin again at their limit: by those a new one, which no driver knows yet, could be the first.
        """
        executors = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (place / "cmdline").read_bytes()
                if b"CoarseGrainedExecutorBackend" not in command:
                    continue
                if str(self.home).encode() in (place / "environ").read_bytes():
                    began = int((place / "stat").read_text().rpartition(")")[2].split()[19])
                    executors.append((began, int(place.name)))
        return [number for _, number in sorted(executors)]

    def daemon(self, name: str) -> Daemon:
        """A process of the cluster that lives."""
        daemon = control.require(self.home).daemon(name)
        assert daemon is not None, f"{name} does not live"
        return daemon

    def kill_daemon(self, name: str) -> None:
        """Kill a master or a worker, and wait until it is dead."""
        daemon = self.daemon(name)
        os.kill(daemon.pid, signal.SIGKILL)
        until(f"death of {name}", lambda: birth(daemon.pid) is None)

    def tail(self) -> str:
        """The end of what drivers have printed."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""
