"""A TCP proxy in front of a server, which stalls, cuts, delays, and loses requests or their answers, as networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

CHUNK_BYTES = 1 << 16
COMMIT = b"COMMIT"
# By which HTTP asks for the rest of a request.
INTERIM = b"HTTP/1.1 100"
Then = Literal["cut", "stall"]


class Proxy:
    """Forwards connections on `port` of loopback to a server; use it as a context manager.

    A stalled connection is half-open: both ends stay connected, and neither hears from the other again. What may be
    lost is a COMMIT, or a request with another `word`. It is known by that text, so TLS has to be off on the way; `url`
    sees to that.
    """

    def __init__(self, port: int, host: str = "127.0.0.1", *, word: bytes = COMMIT) -> None:
        self.server = (host, port)
        self._word = word
        self.accepted = 0
        self.commits = 0
        self._stalls = False
        self._delay_seconds = 0.0
        self._lost: list[tuple[Literal["commit", "answer"], Then]] = []
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
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

    def stall(self) -> None:
        """Leave every connection half-open, and accept new ones without a word."""
        with self._lock:
            self._stalls = True
            for link in self._links:
                link.stalled = True

    def stall_open(self) -> None:
        """Leave the connections of this moment half-open; new ones are served."""
        with self._lock:
            for link in self._links:
                link.stalled = True

    def serve(self) -> None:
        """Serve new connections as if nothing had been; a connection that is half-open stays so."""
        with self._lock:
            self._stalls, self._delay_seconds, self._lost = False, 0.0, []

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.cut()

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
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.server)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            with self._lock:
                self.accepted += 1
                link.stalled = self._stalls
                self._links.append(link)
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
            link.send(link.server, chunk)
        link.half_closed(link.server)

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
            link.send(link.client, chunk)
        link.half_closed(link.client)

    def _loses(self) -> tuple[str, Then] | None:
        with self._lock:
            self.commits += 1
            return self._lost.pop(0) if self._lost else None


@dataclass(eq=False)
class _Link:
    """One connection through the proxy: its two ends, and what is to happen to it."""

    client: socket.socket
    server: socket.socket
    stalled: bool = False
    swallows: Then | None = None
    _cut: bool = field(default=False)

    def send(self, end: socket.socket, chunk: bytes) -> None:
        """Pass a chunk on; what comes into a stalled link is taken and forgotten."""
        if not self.stalled and not self._cut:
            with contextlib.suppress(OSError):
                end.sendall(chunk)

    def half_closed(self, end: socket.socket) -> None:
        """The other end has nothing more to say; of a stalled link nobody hears that either."""
        if not self.stalled:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        self._cut = True
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _chunks(end: socket.socket) -> Iterator[bytes]:
    """What comes from one end until it closes."""
    with contextlib.suppress(OSError):
        while chunk := end.recv(CHUNK_BYTES):
            yield chunk
