"""PgBouncer in front of a PostgreSQL server: few sessions of the server, which many clients get in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import psycopg

from services import process
from services.postgres import ADMIN, PostgresServer
from services.server import Server

MISSING = "PgBouncer is not installed: `sudo apt-get install pgbouncer` (version 1.18 or newer)"
PoolMode = Literal["session", "transaction", "statement"]


class PgBouncerServer(Server):
    """One pooler, as Debian's package comes; every client becomes the server's administrator."""

    def __init__(self, home: Path, server: PostgresServer, mode: PoolMode, *, sessions: int = 2) -> None:
        super().__init__(home, process.ordinary_user("postgres"))
        self.server, self.mode, self.sessions = server, mode, sessions

    @staticmethod
    def missing() -> str | None:
        """What to do to get it; None when it is there."""
        return None if process.program("pgbouncer") else MISSING

    def url(self, *, database: str = "postgres") -> str:
        return f"postgresql://{ADMIN}:any@127.0.0.1:{self.port}/{database}"

    def install(self) -> None:
        """Write its settings."""
        (self.home / "port").write_text(str(process.free_port()))
        self.user.owns(self.home)
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": self.mode,
            "default_pool_size": self.sessions,
        }
        place = f"host=127.0.0.1 port={self.server.port} user={ADMIN} password={self.server.password}"
        lines = [f"{name} = {value}" for name, value in settings.items()]
        text = "\n".join(["[databases]", f"* = {place}", "[pgbouncer]", *lines, ""])
        self.user.owns(process.write_private(self.home / "pgbouncer.ini", text))
        (self.home / "installed").touch()

    def command(self) -> list[str]:
        path = process.program("pgbouncer")
        if path is None:
            raise process.ServerFault(MISSING)
        return [path, str(self.home / "pgbouncer.ini")]

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.url(), autocommit=True, connect_timeout=5, sslmode="disable") as connection:
                connection.execute("SELECT 1")
        except (psycopg.Error, OSError):
            return False
        return True
