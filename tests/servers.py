"""Fixtures for the tests of tier `services`: real servers, started once, and a fresh database for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest

from services import KINDS, MariaDbServer, PostgresServer, Server
from services.process import new_home

_numbers = count()


def running(name: str) -> Iterator[Server]:
    """A server of its own; a machine that has none skips the test, except in CI, where it fails."""
    kind = KINDS[name]
    if sentence := kind.missing():
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    server = kind(new_home(name))
    try:
        server.install()
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    yield from running("postgres")


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    yield from running("mariadb")


def fresh(server: PostgresServer | MariaDbServer) -> Iterator[str]:
    """The URL of an empty database, dropped afterwards."""
    name = f"test_{next(_numbers)}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    yield from fresh(postgres_server)


@pytest.fixture
def mariadb_url(mariadb_server: MariaDbServer) -> Iterator[str]:
    yield from fresh(mariadb_server)
