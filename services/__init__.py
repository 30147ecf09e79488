"""Real servers for tests, benchmarks and people, on loopback, in a directory of their own."""

from __future__ import annotations

from services.kafka import KafkaServer
from services.mariadb import MariaDbServer
from services.postgres import PostgresServer
from services.server import Server

KINDS: dict[str, type[PostgresServer] | type[MariaDbServer] | type[KafkaServer]] = {
    "postgres": PostgresServer,
    "mariadb": MariaDbServer,
    "kafka": KafkaServer,
}

__all__ = ["KINDS", "KafkaServer", "MariaDbServer", "PostgresServer", "Server"]
