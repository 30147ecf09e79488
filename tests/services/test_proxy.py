"""The proxy does to connections what a test asks for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from services.process import free_port
from services.proxy import Proxy

pytestmark = pytest.mark.plain


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy in front of a server that answers every message with the same in brackets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with suppress(ConnectionResetError):
            while chunk := connection.recv(1000):
                connection.sendall(b"<" + chunk + b">")

    def accept() -> None:
        while True:
            try:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    with Proxy(listener.getsockname()[1]) as proxy:
        yield proxy
    listener.close()


def connect(proxy: Proxy) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port))
    assert ask(connection, b"hello") == b"<hello>"
    return connection


def ask(connection: socket.socket, question: bytes, *, seconds: float = 20.0) -> bytes:
    """The answer; `silence` where there is none for so long, `gone` where the connection is cut."""
    connection.settimeout(seconds)
    try:
        connection.sendall(question)
        return connection.recv(1000) or b"gone"
    except TimeoutError:
        return b"silence"
    except OSError:
        return b"gone"


def test_a_stalled_connection_is_half_open_for_ever_and_a_new_one_is_served_again(proxy: Proxy) -> None:
    old = connect(proxy)
    proxy.stall()
    assert ask(old, b"you?", seconds=0.3) == b"silence"
    proxy.serve()
    assert ask(old, b"you?", seconds=0.3) == b"silence"
    connect(proxy)


def test_while_it_stalls_new_connections_are_accepted_and_hear_nothing(proxy: Proxy) -> None:
    proxy.stall()
    new = socket.create_connection(("127.0.0.1", proxy.port))
    assert ask(new, b"hello", seconds=0.3) == b"silence"


def test_what_is_held_comes_in_whole_when_it_is_let_go(proxy: Proxy) -> None:
    old = connect(proxy)
    assert proxy.hold() == 1
    new = socket.create_connection(("127.0.0.1", proxy.port))
    assert [ask(connection, b"you?", seconds=0.3) for connection in (old, new)] == [b"silence"] * 2
    proxy.let_go()
    for connection in (old, new):
        connection.settimeout(20)
        assert connection.recv(1000) == b"<you?>"
    assert proxy.held_bytes == 2 * len(b"you?")


def test_a_reset_is_seen_as_such(proxy: Proxy) -> None:
    old = connect(proxy)
    old.settimeout(20)
    assert proxy.cut(reset=True) == 1
    with pytest.raises(ConnectionResetError):
        old.recv(1000)
    connect(proxy)


CLIENT = """
import socket, sys
while words := sys.stdin.readline().split():
    if words[0] == "connect":
        connection = socket.create_connection(("127.0.0.1", int(words[1])))
        connection.settimeout(0.5)
    try:
        connection.sendall(b"hello")
        print((connection.recv(1000) or b"gone").decode(), flush=True)
    except TimeoutError:
        print("silence", flush=True)
    except OSError:
        print("gone", flush=True)
"""


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux shows whose connection it is")
@pytest.mark.parametrize(("fault", "seen"), [("stall", "silence"), ("hold", "silence"), ("cut", "gone")])
def test_a_fault_is_one_of_one_process(proxy: Proxy, fault: str, seen: str) -> None:
    def say(words: str) -> str:
        assert other.stdin is not None
        assert other.stdout is not None
        print(words, file=other.stdin, flush=True)
        return other.stdout.readline().strip()

    ours = connect(proxy)
    with subprocess.Popen([sys.executable, "-c", CLIENT], stdin=-1, stdout=-1, text=True) as other:
        assert say(f"connect {proxy.port}") == "<hello>"
        getattr(proxy, fault)(other.pid)
        assert say("again") == seen
        # New connections too, but for those that were cut once.
        assert say(f"connect {proxy.port}") == ("<hello>" if fault == "cut" else seen)
        assert ask(ours, b"you?") == b"<you?>"
        connect(proxy)
        proxy.serve()
        assert say(f"connect {proxy.port}") == "<hello>"


def test_it_listens_at_the_address_that_it_is_given() -> None:
    # Only Linux has all of 127.0.0.0/8 without a setting.
    address = "127.0.0.9" if sys.platform == "linux" else "127.0.0.1"
    place = (address, free_port())
    with Proxy(1, listen=place):
        socket.create_connection(place).close()


def test_a_cut_connection_is_gone_and_a_new_one_is_served(proxy: Proxy) -> None:
    old = connect(proxy)
    proxy.cut()
    assert ask(old, b"you?") == b"gone"
    connect(proxy)


def test_an_answer_is_delayed(proxy: Proxy) -> None:
    old = connect(proxy)
    proxy.delay(0.5)
    assert ask(old, b"you?", seconds=0.3) == b"silence"
    old.settimeout(20)
    assert old.recv(1000) == b"<you?>"


@pytest.mark.parametrize(("then", "seen"), [("cut", b"gone"), ("stall", b"silence")])
@pytest.mark.parametrize("lost", ["swallow_commit", "swallow_commit_answer"])
def test_one_commit_or_its_answer_is_lost(proxy: Proxy, lost: str, then: str, seen: bytes) -> None:
    old = connect(proxy)
    getattr(proxy, lost)(then=then)
    assert ask(old, b"insert") == b"<insert>"
    assert ask(old, b"COMMIT", seconds=0.3 if seen == b"silence" else 20.0) == seen
    assert ask(connect(proxy), b"COMMIT") == b"<COMMIT>"
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
