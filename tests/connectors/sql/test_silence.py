"""A server that is silent is asked, and only one that does not work is cut off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import psycopg
import pymysql
import pytest

from headrace.connectors.sql.mysql import connection as mysql_connection
from headrace.connectors.sql.mysql.connection import MySqlAddress
from headrace.connectors.sql.postgres import connection as postgres_connection
from headrace.connectors.sql.silence import cut_when_silent, shut

pytestmark = pytest.mark.plain


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def refusing(text: str) -> Callable[[], bool]:
    def works() -> NoReturn:
        raise OSError(text)

    return works


@pytest.mark.parametrize("works", [lambda: False, refusing("unreachable")], ids=["says no", "cannot be asked"])
def test_a_wait_for_a_server_that_does_not_work_ends_in_a_sentence(
    ends: tuple[socket.socket, socket.socket], works: Callable[[], bool]
) -> None:
    def wait() -> None:
        with cut_when_silent(works, lambda: shut(ends[0].fileno()), psycopg.OperationalError, seconds=0.2):
            assert ends[0].recv(1) == b""  # as a client library finds it
            raise ConnectionError("closed")

    with pytest.raises(psycopg.OperationalError, match="has not answered for 0 s"):
        wait()


def test_a_server_that_works_is_waited_for_and_asked_again(ends: tuple[socket.socket, socket.socket]) -> None:
    asked: list[float] = []

    def works() -> bool:
        asked.append(time.monotonic())
        return True

    threading.Timer(1.5, lambda: ends[1].sendall(b"x")).start()
    with cut_when_silent(works, lambda: shut(ends[0].fileno()), psycopg.OperationalError, seconds=0.2):
        assert ends[0].recv(1) == b"x"
    assert len(asked) >= 2


def test_what_is_over_is_not_cut(ends: tuple[socket.socket, socket.socket]) -> None:
    with cut_when_silent(lambda: False, lambda: shut(ends[0].fileno()), psycopg.OperationalError, seconds=0.3):
        pass
    time.sleep(0.8)
    ends[1].sendall(b"x")
    assert ends[0].recv(1) == b"x"


def test_a_server_without_a_free_connection_is_not_taken_for_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise psycopg.OperationalError("FATAL:  sorry, too many clients already")

    monkeypatch.setattr(postgres_connection, "_open", full)
    assert postgres_connection._is_working("postgresql://db/x", 1)

    def full_too(*_: object, **__: object) -> NoReturn:
        raise pymysql.err.OperationalError(1040, "Too many connections")

    monkeypatch.setattr(mysql_connection, "_connect_to_ask", full_too)
    assert mysql_connection.end_unless_working(MySqlAddress.parse("mysql://db/x"), 1)
