"""A PostgreSQL server of its own."""

from __future__ import annotations

import secrets
import signal
from pathlib import Path

import psycopg

from services import process, tls
from services.server import DatabaseServer

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
MISSING = "PostgreSQL is not installed: `sudo apt-get install postgresql` (version 15 or newer)"
ADMIN = "headrace_admin"


class PostgresServer(DatabaseServer):
    """One cluster."""

    stops_by = signal.SIGINT

    def __init__(self, home: Path) -> None:
        super().__init__(home, process.ordinary_user("postgres"))

    @staticmethod
    def missing() -> str | None:
        """What to do to get it; None when it is there."""
        there = all(process.program(name, *PLACES) for name in ("initdb", "postgres"))
        return None if there else MISSING

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

    def command(self) -> list[str]:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.home,
            "shared_buffers": "512MB",
            "max_wal_size": "512MB" if process.is_in_memory(self.home) else "4GB",
            "max_connections": 60,
            # So that Debezium can follow a table.
            "wal_level": "logical",
            "ssl": "on",
            "ssl_cert_file": self.home / "server.crt",
            "ssl_key_file": self.home / "server.key",
        }
        command = [self._program("postgres"), "-D", str(self.home / "data")]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except (psycopg.Error, OSError):
            return False
        return True

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        limit = f"-c statement_timeout={1000 * process.STATEMENT_SECONDS}"
        with psycopg.connect(
            self.url(database=database), autocommit=True, connect_timeout=5, options=limit, sslmode="disable"
        ) as connection:
            connection.execute(statement)

    def create_database(self, name: str) -> str:
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(database=name)

    def drop_database(self, name: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _program(self, name: str) -> str:
        path = process.program(name, *PLACES)
        if path is None:
            raise process.ServerFault(MISSING)
        return path
