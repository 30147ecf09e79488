"""A TCP server that sends lines to each connected client, for tests of the socket source."""

from __future__ import annotations

import socket
import threading


class LineServer:
    """Accepts every client and sends to the newest; `hang_up` closes its connection."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        self.clients: list[socket.socket] = []
        self.changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            with self.changed:
                self.clients.append(client)
                self.changed.notify_all()

    def send(self, *lines: str) -> None:
        """Send to the newest client, after waiting for the first one."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.clients, timeout=60), "no client has connected"
            self.clients[-1].sendall("".join(f"{line}\n" for line in lines).encode())

    def hang_up(self) -> None:
        """Close every connection, and continue listening."""
        with self.changed:
            while self.clients:
                self.clients.pop().close()

    def close(self) -> None:
        """Listen no more; a thread that waits in `accept` would keep the port open."""
        if self.listening.fileno() >= 0:
            self.listening.shutdown(socket.SHUT_RDWR)
            self.listening.close()
        self.hang_up()
