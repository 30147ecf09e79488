"""A TCP proxy in front of a server: it stalls, holds, cuts, delays and loses requests or answers, as networks do."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

CHUNK_BYTES = 1 << 16
COMMIT = b"COMMIT"
# By which HTTP asks for the rest of a request.
INTERIM = b"HTTP/1.1 100"
# A socket that is closed with it sends a reset (SO_LINGER for no second).
LINGER = struct.pack("ii", 1, 0)
PROC = Path("/proc")
Then = Literal["cut", "stall"]


class Proxy:
    """Forwards connections on `port` of loopback to a server; use it as a context manager.

    A stalled connection is half-open: both ends stay connected, and neither hears from the other again. One that is
    held hears nothing either, until it is let go: then all that was said meanwhile comes in. What may be lost is a
    COMMIT, or a request with another `word`. It is known by that text, so TLS has to be off on the way; `url` sees to
    that.

    listen: an address and a port of its own, such as the server's port on another address of loopback.
    held_bytes: how much was kept back by now. A fault with a `process` is one of that client's connections alone, by
    /proc of Linux.
    """

    def __init__(
        self, port: int, host: str = "127.0.0.1", *, word: bytes = COMMIT, listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self.server = (host, port)
        self._word = word
        self.accepted = 0
        self.commits = 0
        self.held_bytes = 0
        # Whose new connections; None: everybody's.
        self._stalls: set[int | None] = set()
        self._holds: set[int | None] = set()
        self._delay_seconds = 0.0
        self._lost: list[tuple[Literal["commit", "answer"], Then]] = []
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._listener = socket.create_server(listen)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, url: str) -> str:
        """`url` of a database, by way of this proxy and without TLS."""
        parts = urlsplit(url)
        off = {"ssl_mode": "disabled"} if parts.scheme in ("mysql", "mariadb") else {"sslmode": "disable"}
        account, at, _ = parts.netloc.rpartition("@")
        query = urlencode({**dict(parse_qsl(parts.query)), **off})
        return urlunsplit(parts._replace(netloc=f"{account}{at}127.0.0.1:{self.port}", query=query))

    # ------------------------------------------------------------------------------------------------ commands

    def stall(self, process: int | None = None) -> None:
        """Leave every connection half-open, and accept new ones without a word."""
        with self._lock:
            self._stalls.add(process)
            for link in self._links_of(process):
                link.stalled = True

    def stall_open(self) -> None:
        """Leave the connections of this moment half-open; new ones are served."""
        with self._lock:
            for link in self._links:
                link.stalled = True

    def hold(self, process: int | None = None) -> int:
        """Keep back what is said on every connection, and on new ones, until `let_go`; returns how many there are."""
        with self._lock:
            self._holds.add(process)
            links = self._links_of(process)
            for link in links:
                link.passing.clear()
            return len(links)

    def let_go(self) -> None:
        """Pass on what was held, in its order, as a network does that is there again."""
        with self._lock:
            self._holds.clear()
            for link in self._links:
                link.passing.set()

    def serve(self) -> None:
        """Serve new connections as if nothing had been; a connection that is half-open stays so."""
        self.let_go()
        with self._lock:
            self._stalls, self._delay_seconds, self._lost = set(), 0.0, []

    def cut(self, process: int | None = None, *, reset: bool = False) -> int:
        """Close every connection, or let both ends see a reset; returns how many there were."""
        with self._lock:
            links = self._links_of(process)
            self._links = [link for link in self._links if link not in links]
        for link in links:
            link.cut(reset=reset)
        return len(links)

    def delay(self, seconds: float) -> None:
        """Hold back each part of an answer for so long."""
        self._delay_seconds = seconds

    def swallow_commit_answer(self, *, then: Then = "cut", times: int = 1) -> None:
        """Let the next COMMIT reach the server, and lose its answer."""
        with self._lock:
            self._lost += [("answer", then)] * times

    def swallow_commit(self, *, then: Then = "cut", times: int = 1) -> None:
        """Lose the next COMMIT on its way to the server."""
        with self._lock:
            self._lost += [("commit", then)] * times

    def close(self) -> None:
        """Cut everything, and accept nothing more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    # ------------------------------------------------------------------------------------------------- pumping

    def _accept(self) -> None:
        while True:
            try:
                client, (_, port) = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.server)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server, port)
            with self._lock:
                self.accepted += 1
                self._links.append(link)
                link.stalled = any(link in self._links_of(process) for process in self._stalls)
                if any(link in self._links_of(process) for process in self._holds):
                    link.passing.clear()
            for pump in (self._to_server, self._to_client):
                threading.Thread(target=pump, args=(link,), name="proxy link", daemon=True).start()

    def _to_server(self, link: _Link) -> None:
        seen = b""
        for chunk in _chunks(link.client):
            # The word may be split over two chunks.
            has_commit = self._word in seen[-len(self._word) + 1 :] + chunk
            seen = chunk
            lost = self._loses() if has_commit else None
            if lost and lost[0] == "commit":
                if lost[1] == "cut":
                    link.cut()
                link.stalled = True
                continue
            if lost:
                link.swallows = lost[1]
            self._pass(link, link.server, chunk)
        link.half_close(link.server)

    def _to_client(self, link: _Link) -> None:
        for chunk in _chunks(link.server):
            if self._delay_seconds:
                time.sleep(self._delay_seconds)
            if link.swallows and chunk.startswith(INTERIM):
                pass  # The request is not whole yet.
            elif link.swallows == "cut":
                link.cut()
            elif link.swallows == "stall":
                link.stalled = True
            self._pass(link, link.client, chunk)
        link.half_close(link.client)

    def _pass(self, link: _Link, end: socket.socket, chunk: bytes) -> None:
        if not link.passing.is_set():
            with self._lock:
                self.held_bytes += len(chunk)
        link.send(end, chunk)

    def _links_of(self, process: int | None) -> list[_Link]:
        ports = None if process is None else client_ports(process, self.port)
        self._links = [link for link in self._links if not link.has_ended]
        return [link for link in self._links if ports is None or link.port in ports]

    def _loses(self) -> tuple[str, Then] | None:
        with self._lock:
            self.commits += 1
            return self._lost.pop(0) if self._lost else None


@dataclass(eq=False)
class _Link:
    """One connection through the proxy: its two ends, the client's port, and what is to happen to it."""

    client: socket.socket
    server: socket.socket
    port: int
    stalled: bool = False
    swallows: Then | None = None
    passing: threading.Event = field(default_factory=threading.Event)
    _cut: bool = field(default=False)
    _closed: set[socket.socket] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.passing.set()

    @property
    def has_ended(self) -> bool:
        """Whether both ends know that the other has nothing more to say."""
        return len(self._closed) == 2

    def send(self, end: socket.socket, chunk: bytes) -> None:
        """Pass a chunk on; what comes into a stalled link is taken and forgotten."""
        self.passing.wait()
        if not self.stalled and not self._cut:
            with contextlib.suppress(OSError):
                end.sendall(chunk)

    def half_close(self, end: socket.socket) -> None:
        """The other end has nothing more to say; a stalled link does not pass that on either."""
        self.passing.wait()
        # A cut comes from the proxy: a regular end on the way would be seen in place of its reset.
        if not self.stalled and not self._cut:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_WR)
            self._closed.add(end)

    def cut(self, *, reset: bool = False) -> None:
        self._cut = True
        self.passing.set()
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                # It wakes who waits for what comes; only the second says a regular end to the other side.
                end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
            end.close()


def client_ports(process: int, port: int) -> set[int]:
    """From which ports a process is connected to `port` now; from none if it is dead."""
    sockets = set()
    with contextlib.suppress(OSError):
        for file in (PROC / str(process) / "fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(file))
    rows = [line.split() for table in ("tcp", "tcp6") for line in (PROC / "net" / table).read_text().splitlines()[1:]]
    return {_port(row[1]) for row in rows if f"socket:[{row[9]}]" in sockets and _port(row[2]) == port}


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _chunks(end: socket.socket) -> Iterator[bytes]:
    """What comes from one end until it closes."""
    with contextlib.suppress(OSError):
        while chunk := end.recv(CHUNK_BYTES):
            yield chunk
