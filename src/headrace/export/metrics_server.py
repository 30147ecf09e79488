"""`/metrics`, `/healthz` and `/readyz` of a running application, over HTTP."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.control.board import Board
from headrace.export.metrics import MetricsObserver
from headrace.export.serving import bind, serve_in_thread, server_of, with_headers
from headrace.model.operations import LOOPBACK
from headrace.model.operations import Metrics as Settings

# The supervisor comes by ten times a second; a start that hangs in a client is another thread's.
STALE_SECONDS = 60.0
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@contextmanager
def serve_metrics(settings: Settings, board: Board, metrics: MetricsObserver) -> Iterator[int]:
    """Serve while the block runs; gives the port. Raises PlatformError where it cannot be had."""
    made = bind(
        "metrics",
        settings.address,
        settings.port,
        other_port="name another port: metrics: {port: ...} in headrace.yml, or headrace run --metrics PORT",
        other_address="give metrics an address of this machine, as 127.0.0.1 or 0.0.0.0: metrics: {address: ...}",
    )
    with made, serve_in_thread(server_of(application(settings, board, metrics), proxy_headers=False), made, "metrics"):
        yield int(made.getsockname()[1])


def application(settings: Settings, board: Board, metrics: MetricsObserver) -> ASGIApp:
    """Return the three addresses, behind what looks at who asks."""

    def health(request: Request, state: Mapping[str, Any]) -> Response:
        # A request without the token learns no names.
        facts = state if _may_read(settings, request.headers) else {"ok": state["ok"]}
        return Response(json.dumps(facts) + "\n", 200 if state["ok"] else 503, media_type="application/json")

    routes = [
        Route("/metrics", _Scraped(metrics)),
        Route("/healthz", lambda request: health(request, health_state(board))),
        Route("/readyz", lambda request: health(request, readiness(board))),
    ]
    return _Guard(Starlette(routes=routes, exception_handlers={404: _not_found}), settings)


class _Scraped:
    """The library's application over a registry that was collected in a thread: sources are asked, which takes time."""

    def __init__(self, metrics: MetricsObserver) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from prometheus_client import make_asgi_app

        registry = await run_in_threadpool(self._metrics.take_snapshot)
        await make_asgi_app(registry)(scope, receive, send)


class _Guard:
    """Refuses what was meant for another address, and metrics to who has no token."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await with_headers(self._refusal(scope) or self._app, _HEADERS)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        # On loopback, a page of another site may have let its name point here.
        if self._settings.address in LOOPBACK and host.strip("[]") not in LOOPBACK:
            return PlainTextResponse("this address is not served here\n", 421)
        if scope["path"] == "/metrics" and not _may_read(self._settings, headers):
            return PlainTextResponse("the token is missing or wrong\n", 401, {"WWW-Authenticate": "Bearer"})
        return None


def _may_read(settings: Settings, headers: Headers) -> bool:
    given = headers.get("authorization", "")
    return not settings.token or hmac.compare_digest(given.encode(), f"Bearer {settings.token}".encode())


def _not_found(request: Request, error: Exception) -> Response:
    return PlainTextResponse("there are /metrics, /healthz and /readyz\n", 404)


def health_state(board: Board) -> dict[str, Any]:
    """Whether the application lives: its supervisor has come by a moment ago."""
    silent = time.monotonic() - board.beat_at
    return {"ok": not board.over and silent < STALE_SECONDS, "supervisor_silent_seconds": round(silent, 1)}


def readiness(board: Board) -> dict[str, Any]:
    """Whether every query does its work: none waits for its start, its source or its sink, or has failed."""
    states = board.states()
    ok = bool(states) and not board.over and not any(one.is_down or one.state == "waiting" for one in states.values())
    return {"ok": ok, "queries": {query: state.state for query, state in states.items()}}
