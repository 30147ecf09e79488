"""A worker of Kafka Connect for the tests of one file, in front of the shared broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services import ConnectServer, MariaDbServer
from tests.servers import Servers, home_of, unavailable


@pytest.fixture(scope="module")
def connect(servers: Servers) -> Iterator[ConnectServer]:
    if sentence := ConnectServer.missing():
        unavailable(sentence)
    server = ConnectServer(home_of("connect"), servers.get("kafka"))
    try:
        server.create()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="module")
def logged_mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB that logs the changes of rows."""
    if sentence := MariaDbServer.missing():
        unavailable(sentence)
    server = MariaDbServer(home_of("mariadb"), binlog=True)
    try:
        server.create()
        yield server
    finally:
        server.remove()
