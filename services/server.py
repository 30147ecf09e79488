"""What every server here has in common: a directory, a port that stays, and one process."""

from __future__ import annotations

import shutil
import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from services import process

# How often a server is made, or started again, whose port somebody else has got first.
ATTEMPTS = 4


class Server(ABC):
    """A server below `home`, on a port that stays the same over restarts."""

    stops_by: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, home: Path, user: process.User) -> None:
        self.home = home
        self.user = user
        self.log_file = home / "log"

    @staticmethod
    @abstractmethod
    def missing() -> str | None:
        """What to do to get it; None when it is there."""

    @property
    def installed(self) -> bool:
        """Whether `install` came to its end."""
        return (self.home / "installed").exists()

    @property
    def port(self) -> int:
        return int((self.home / "port").read_text())

    @property
    def pid(self) -> int:
        return int((self.home / "pid").read_text())

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @abstractmethod
    def url(self) -> str:
        """By what clients reach it."""

    @abstractmethod
    def install(self) -> None:
        """Make an empty data directory."""

    @abstractmethod
    def command(self) -> list[str]:
        """What is run to start it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it can be used by now."""

    def create(self) -> None:
        """Install in an empty directory and start; with other ports where somebody else has got one of them first."""
        for attempt in range(1, ATTEMPTS + 1):
            self.home.mkdir(exist_ok=True)
            self.home.chmod(0o755)  # Whatever the umask: the servers' accounts pass through.
            try:
                self.install()
                self.start_once()
                return
            except process.PortTaken:
                self.remove()
                if attempt == ATTEMPTS:
                    raise

    def start(self) -> None:
        """Start, and wait until it answers. What is committed outlives a crash: nothing of that is switched off.

        Clients know the port: where a connection of somebody else's has got it meanwhile, its end is waited for.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.start_once()
                return
            except process.PortTaken:
                self.kill()
                if attempt == ATTEMPTS:
                    raise
                time.sleep(attempt)

    def start_once(self) -> None:
        """What `start` tries; raises PortTaken where somebody else uses the port."""
        self.launch()

    def launch(self, *more: str) -> None:
        """Start with further arguments, and wait until it answers."""
        if pid := process.running(self.home):
            raise process.ServerFault(f"the server of {self.home} runs already, as process {pid}")
        begin = process.size(self.log_file)
        pid = process.launch([*self.command(), *more], self.user, self.home, self.log_file)
        process.await_answer(self.answers, pid, self.log_file, begin)

    def stop(self) -> None:
        """Stop as a restart of the service would: running transactions are rolled back."""
        if pid := process.running(self.home):
            process.stop(pid, self.stops_by)

    def kill(self) -> None:
        """End it as a power cut would."""
        if pid := process.running(self.home):
            process.kill(pid)

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop, and remove everything; a directory that holds no server of ours stays."""
        self.stop()
        if (self.home / "port").exists():
            shutil.rmtree(self.home, ignore_errors=True)


class DatabaseServer(Server):
    """A server of databases whose every user needs a password."""

    @property
    def password(self) -> str:
        return (self.home / "password").read_text()

    @property
    def root_certificate(self) -> Path:
        return self.home / "root.crt"

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run one statement as the administrator."""

    @abstractmethod
    def create_database(self, name: str) -> str:
        """A new empty database; returns its URL."""

    @abstractmethod
    def drop_database(self, name: str) -> None: ...
