"""Who may ask: the right Host, the token where one is set, and headers that let no other site in."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "headrace_ui"
OPEN = ("/login", "/static/")
ACTIONS = {"/api/ask": "POST", "/api/verify": "GET, HEAD, POST"}
"""What does more than tell, and by which methods each is asked."""
OWN_HEADER = "x-headrace"
NO_TOKEN = (
    "rows are shown, questions answered and verifies started only for who has the token: set HEADRACE_UI_TOKEN and "
    "start the dashboard again"
)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Stands before the application.

    hosts: the names by which it may be asked; a page of another site whose name was made to point here has another.
    Addresses need no such list where a token is asked for.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], token: str = "") -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._token = token
        self._session = hmac.new(secrets.token_bytes(32), token.encode(), hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, with_headers)

    def session_for(self, token: str) -> str | None:
        """What the browser keeps once it has shown the token; None if it is wrong."""
        right = bool(self._token) and hmac.compare_digest(token.encode(), self._token.encode())
        return self._session if right else None

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._is_meant_for_us(headers.get("host", "")):
            return JSONResponse({"error": "this address is not served here"}, 421)
        if scope["method"] not in ("GET", "HEAD") and scope["path"] != "/login":
            return self._action_refusal(scope, headers)
        if self._may_read(headers) or scope["path"].startswith(OPEN):
            return None
        if scope["path"].startswith("/api/"):
            return JSONResponse({"error": "the token is missing or wrong"}, 401, headers={"WWW-Authenticate": "Bearer"})
        return RedirectResponse("/login", 303)

    def _action_refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Why something is not done; None: it may be. Pages of other sites send neither our header nor our origin."""
        if scope["path"] not in ACTIONS or scope["method"] != "POST":
            allowed = {"Allow": ACTIONS.get(scope["path"], "GET, HEAD")}
            return JSONResponse({"error": "pages can only be read"}, 405, headers=allowed)
        if not self._token:
            return JSONResponse({"error": NO_TOKEN}, 403)
        if not self._may_read(headers):
            return JSONResponse({"error": "the token is missing or wrong"}, 401, headers={"WWW-Authenticate": "Bearer"})
        origin = headers.get("origin", "").partition("://")[2]
        own = headers.get(OWN_HEADER) == "1" and origin == headers.get("host", "")
        if "authorization" in headers or (own and headers.get("sec-fetch-site", "same-origin") == "same-origin"):
            return None
        return JSONResponse({"error": "this was asked by the page of another site"}, 403)

    def _is_meant_for_us(self, given: str) -> bool:
        host = _without_port(given).lower()
        return host in self._hosts or (bool(self._token) and _is_address(host))

    def _may_read(self, headers: Headers) -> bool:
        if not self._token:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), self._token.encode()):
            return True
        try:
            kept = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return kept is not None and hmac.compare_digest(kept.value.encode(), self._session.encode())


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
