"""Real servers for tests, benchmarks and people: PostgreSQL and MariaDB, on loopback, in a directory of their own."""

from __future__ import annotations

from typing import TypeAlias

from services.mariadb import MariaDbServer
from services.postgres import PostgresServer

Server: TypeAlias = PostgresServer | MariaDbServer
KINDS: dict[str, type[PostgresServer] | type[MariaDbServer]] = {"postgres": PostgresServer, "mariadb": MariaDbServer}

__all__ = ["KINDS", "MariaDbServer", "PostgresServer", "Server"]
