"""`/metrics`, `/healthz` and `/readyz` of a running application, over HTTP."""

from __future__ import annotations

import hmac
import json
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.errors import Finding, PlatformError
from headrace.model.operations import LOOPBACK
from headrace.model.operations import Metrics as Settings
from headrace.operate.address import family
from headrace.operate.board import Board
from headrace.operate.metrics import Metrics

# The supervisor comes by ten times a second; a start that hangs in a client is another thread's.
STALE_SECONDS = 60.0
NOT_READY = ("waiting", "starting", "restarting", "failed")


class MetricsServer:
    """Serves until closed; raises PlatformError where the port cannot be had."""

    def __init__(self, settings: Settings, board: Board, metrics: Metrics) -> None:
        handler = type("Handler", (_Handler,), {"settings": settings, "board": board, "metrics": metrics})
        try:
            server = type("Server", (_Server,), {"address_family": family(settings.address)})
            self._server: _Server = server((settings.address, settings.port), handler)
        except OSError as error:
            raise PlatformError(
                Finding(
                    code="HR871",
                    what=f"metrics cannot be served at {settings.address}:{settings.port}: {error.strerror or error}",
                    fix="name another port: metrics: {port: ...} in headrace.yml, or headrace run --metrics PORT",
                )
            ) from error
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A restart of the application finds the port free; one that is in use is refused all the same.
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a reader that has gone, as Prometheus does when a scrape takes too long."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    settings: Settings
    board: Board
    metrics: Metrics
    server_version = "headrace"
    sys_version = ""
    timeout = 10

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not self._is_meant_for_us():
            self._answer(421, "text/plain; charset=utf-8", b"this address is not served here\n")
        elif path == "/metrics":
            self._metrics()
        elif path == "/healthz":
            self._health(healthy(self.board))
        elif path == "/readyz":
            self._health(ready(self.board))
        else:
            self._answer(404, "text/plain; charset=utf-8", b"there are /metrics, /healthz and /readyz\n")

    def _metrics(self) -> None:
        if not self._may_read():
            self._answer(401, "text/plain; charset=utf-8", b"the token is missing or wrong\n", authenticate=True)
            return
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._answer(200, content_type, encode(self.metrics.registry))

    def _health(self, found: Mapping[str, Any]) -> None:
        # Without the token, whoever asks learns no names.
        told = found if self._may_read() else {"ok": found["ok"]}
        self._answer(200 if found["ok"] else 503, "application/json", json.dumps(told).encode() + b"\n")

    def _may_read(self) -> bool:
        wanted = f"Bearer {self.settings.token}"
        given = self.headers.get("Authorization", "")
        return not self.settings.token or hmac.compare_digest(given.encode(), wanted.encode())

    def _is_meant_for_us(self) -> bool:
        """On loopback, a page of another site may have let its name point here."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        return self.settings.address not in LOOPBACK or host.strip("[]") in LOOPBACK

    def _answer(self, status: int, content_type: str, body: bytes, *, authenticate: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if authenticate:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing of each request."""


def healthy(board: Board) -> dict[str, Any]:
    """Whether the application lives: its supervisor has come by a moment ago."""
    silent = time.monotonic() - board.beat_at
    return {"ok": not board.over and silent < STALE_SECONDS, "supervisor_silent_seconds": round(silent, 1)}


def ready(board: Board) -> dict[str, Any]:
    """Whether every query is where it should be: none starts, waits for a restart, or has failed."""
    states = {query: post.state for query, post in board.posts().items()}
    ok = bool(states) and not board.over and not any(state in NOT_READY for state in states.values())
    return {"ok": ok, "queries": states}
