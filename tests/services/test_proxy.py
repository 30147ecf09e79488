"""The proxy does to connections what a test asks for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from services.proxy import Proxy

pytestmark = pytest.mark.plain


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy in front of a server that answers every message with the same in brackets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        while chunk := connection.recv(1000):
            connection.sendall(b"<" + chunk + b">")

    def accept() -> None:
        while True:
            try:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    with Proxy(listener.getsockname()[1]) as found:
        yield found
    listener.close()


def connected(proxy: Proxy) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port))
    assert ask(connection, b"hello") == b"<hello>"
    return connection


def ask(connection: socket.socket, what: bytes, *, seconds: float = 20.0) -> bytes:
    """The answer; `silence` where there is none for so long, `gone` where the connection is cut."""
    connection.settimeout(seconds)
    try:
        connection.sendall(what)
        return connection.recv(1000) or b"gone"
    except TimeoutError:
        return b"silence"
    except OSError:
        return b"gone"


def test_a_stalled_connection_is_half_open_for_ever_and_a_new_one_is_served_again(proxy: Proxy) -> None:
    old = connected(proxy)
    proxy.stall()
    assert ask(old, b"you?", seconds=0.3) == b"silence"
    proxy.serve()
    assert ask(old, b"you?", seconds=0.3) == b"silence"
    connected(proxy)


def test_while_it_stalls_new_connections_are_accepted_and_hear_nothing(proxy: Proxy) -> None:
    proxy.stall()
    new = socket.create_connection(("127.0.0.1", proxy.port))
    assert ask(new, b"hello", seconds=0.3) == b"silence"


def test_a_cut_connection_is_gone_and_a_new_one_is_served(proxy: Proxy) -> None:
    old = connected(proxy)
    proxy.cut()
    assert ask(old, b"you?") == b"gone"
    connected(proxy)


def test_an_answer_is_delayed(proxy: Proxy) -> None:
    old = connected(proxy)
    proxy.delay(0.5)
    assert ask(old, b"you?", seconds=0.3) == b"silence"
    old.settimeout(20)
    assert old.recv(1000) == b"<you?>"


@pytest.mark.parametrize(("then", "seen"), [("cut", b"gone"), ("stall", b"silence")])
@pytest.mark.parametrize("lost", ["swallow_commit", "swallow_commit_answer"])
def test_one_commit_or_its_answer_is_lost(proxy: Proxy, lost: str, then: str, seen: bytes) -> None:
    old = connected(proxy)
    getattr(proxy, lost)(then=then)
    assert ask(old, b"insert") == b"<insert>"
    assert ask(old, b"COMMIT", seconds=0.3 if seen == b"silence" else 20.0) == seen
    assert ask(connected(proxy), b"COMMIT") == b"<COMMIT>"
    assert proxy.commits == 2


@pytest.mark.parametrize(
    ("url", "through"),
    [
        (
            "postgresql://u:p@db:5432/x?connect_timeout=3",
            "postgresql://u:p@127.0.0.1:{}/x?connect_timeout=3&sslmode=disable",
        ),
        ("mysql://u:p@db/x", "mysql://u:p@127.0.0.1:{}/x?ssl_mode=disabled"),
    ],
    ids=["postgres", "mysql"],
)
def test_a_url_by_way_of_the_proxy_has_no_tls(proxy: Proxy, url: str, through: str) -> None:
    assert proxy.url(url) == through.format(proxy.port)
