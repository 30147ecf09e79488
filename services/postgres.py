"""A PostgreSQL server of its own."""

from __future__ import annotations

import secrets
import shutil
import signal
from pathlib import Path

import psycopg

from services import process, tls

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
MISSING = "PostgreSQL is not installed: `sudo apt-get install postgresql` (version 15 or newer)"
ADMIN = "headrace_admin"


class PostgresServer:
    """One cluster below `home`, on a port that stays the same over restarts; every user needs a password."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.user = process.ordinary_user("postgres")
        self.log_file = home / "log"

    @staticmethod
    def missing() -> str | None:
        """What to do to get it; None when it is there."""
        there = all(process.program(name, *PLACES) for name in ("initdb", "postgres"))
        return None if there else MISSING

    @property
    def installed(self) -> bool:
        """Whether `install` came to its end."""
        return (self.home / "installed").exists()

    @property
    def port(self) -> int:
        return int((self.home / "port").read_text())

    @property
    def password(self) -> str:
        return (self.home / "password").read_text()

    @property
    def pid(self) -> int:
        return int((self.home / "pid").read_text())

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def root_certificate(self) -> Path:
        return self.home / "root.crt"

    def url(self, *, database: str = "postgres", user: str = ADMIN, password: str | None = None) -> str:
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def install(self) -> None:
        """Make an empty cluster."""
        (self.home / "port").write_text(str(process.free_port()))
        secret = process.write_private(self.home / "password", secrets.token_hex(12))
        for file in (self.home, secret, *tls.make(self.home)):
            self.user.owns(file)
        (self.home / "server.key").chmod(0o600)
        data = self.home / "data"
        process.finish(
            [
                *(self._program("initdb"), "-D", str(data), "-U", ADMIN, "--pwfile", str(secret)),
                *("-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8"),
            ],
            self.user,
            self.home,
        )
        (self.home / "installed").touch()

    def start(self) -> None:
        """Start, and wait until it answers. What is committed outlives a crash: nothing of that is switched off."""
        if pid := process.running(self.home):
            raise process.ServerFault(f"the server of {self.home} runs already, as process {pid}")
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.home,
            "shared_buffers": "512MB",
            "max_wal_size": "4GB",
            "max_connections": 60,
            "ssl": "on",
            "ssl_cert_file": self.home / "server.crt",
            "ssl_key_file": self.home / "server.key",
        }
        command = [self._program("postgres"), "-D", str(self.home / "data")]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        pid = process.launch(command, self.user, self.home, self.log_file)
        process.await_answer(self.answers, pid, self.log_file)

    def answers(self) -> bool:
        """Whether a query is answered."""
        try:
            self.execute("SELECT 1")
        except (psycopg.Error, OSError):
            return False
        return True

    def stop(self) -> None:
        """Stop as a restart of the service would: running transactions are rolled back."""
        if pid := process.running(self.home):
            process.stop(pid, signal.SIGINT)

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
        if not (self.home / "port").exists():
            return
        shutil.rmtree(self.home, ignore_errors=True)

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        """Run one statement as the administrator."""
        with psycopg.connect(self.url(database=database), autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement)

    def create_database(self, name: str) -> str:
        """A new empty database; returns its URL."""
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(database=name)

    def drop_database(self, name: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _program(self, name: str) -> str:
        found = process.program(name, *PLACES)
        if found is None:
            raise process.ServerFault(MISSING)
        return found
