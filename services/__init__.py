"""Real servers for tests, benchmarks and people, on loopback, in a directory of their own."""

from __future__ import annotations

from services.connect import ConnectServer
from services.hdfs import HdfsServer
from services.kafka import KafkaServer, SecureKafkaServer
from services.mariadb import MariaDbServer
from services.postgres import PostgresServer
from services.s3 import S3Server
from services.server import Server

DATABASES: dict[str, type[PostgresServer] | type[MariaDbServer]] = {
    "postgres": PostgresServer,
    "mariadb": MariaDbServer,
}
KINDS: dict[str, type[PostgresServer] | type[MariaDbServer] | type[KafkaServer] | type[HdfsServer] | type[S3Server]] = {
    **DATABASES,
    "kafka": KafkaServer,
    "hdfs": HdfsServer,
    "s3": S3Server,
}

__all__ = [
    "DATABASES",
    "KINDS",
    "ConnectServer",
    "HdfsServer",
    "KafkaServer",
    "MariaDbServer",
    "PostgresServer",
    "S3Server",
    "SecureKafkaServer",
    "Server",
]
