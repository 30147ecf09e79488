"""Who may ask: the right Host, the token, and headers that let no other site in."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import secrets
import time
from collections.abc import Callable, Collection
from html import escape
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers, QueryParams
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.export.serving import with_headers
from headrace.units import ip_address

STATIC = Path(__file__).parent / "static"
OPEN = ("/login", "/static/")
ACTIONS = {"/api/ask": "POST", "/api/verify": "GET, HEAD, POST", "/api/late": "GET, HEAD, POST"}
"""The addresses that do more than read, and their methods."""
BOARD = "/projects/"
"""What the addresses of a project begin with, where several are on one board."""
OWN_HEADER = "x-headrace"
LINK = "open"
"""The parameter of a link that has the token, as the command prints it."""
# So many wrong tokens of one address cost nothing; each further one doubles the time in which others of it are refused.
# The right one is never refused: it has 16 characters at least, which are not guessed at any speed, while a program
# with an old token would lock out everyone behind the same address.
FREE_TRIES, LONGEST_WAIT, FORGOTTEN_AFTER = 5, 300.0, 3_600.0
ADDRESSES_MOST = 10_000
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


class Tries:
    """Counts wrong tokens by the address that they came from, and says how long it should wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: dict[str, tuple[int, float]] = {}

    def wait(self, address: str) -> int:
        """For how many seconds wrong tokens of the address are refused as too many; 0: not any more."""
        wrong, last = self._wrong.get(_network(address), (0, 0.0))
        if wrong < FREE_TRIES:
            return 0
        return max(0, math.ceil(last + min(LONGEST_WAIT, 2.0 ** (wrong - FREE_TRIES)) - self._clock()))

    def count(self, address: str, *, is_right: bool) -> None:
        """Note what a token was."""
        now, name = self._clock(), _network(address)
        wrong, last = self._wrong.pop(name, (0, now))
        if not is_right:
            # The newest stands last, so that the first ones are those to forget.
            self._wrong[name] = (1 + (wrong if now - last < FORGOTTEN_AFTER else 0), now)
            for oldest in list(self._wrong)[:-ADDRESSES_MOST]:
                del self._wrong[oldest]


class Guard:
    """Stands before the application.

    hosts: the names by which it may be asked; a page of another site whose name was made to point here has another.
    Addresses need no such list, since a token is asked for. secure: whether it is served by TLS.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], token: str, secure: bool = False, tries: Tries | None = None
    ) -> None:
        self._app = app
        self._secure = secure
        self._hosts = frozenset(host.lower() for host in hosts)
        self._token = token
        self._tries = tries or Tries()
        self._session = hmac.new(secrets.token_bytes(32), token.encode(), hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        await with_headers(self._refusal(scope) or self._app, _HEADERS)(scope, receive, send)

    def enter(self, scope: Scope, token: str, to: str) -> Response:
        """Redirect to the page `to`, with a session cookie, if the token is right; else show the form again."""
        wait = self._try(scope, token)
        if wait is None:
            answer = RedirectResponse(to, 303)
            name = cookie_name(Headers(scope=scope))
            answer.set_cookie(name, self._session, httponly=True, samesite="strict", secure=self._secure)
            return answer
        notice = _TOO_MANY.format(wait) if wait else "the token is wrong"
        return login_page(notice, 429 if wait else 401, **({"Retry-After": str(wait)} if wait else {}))

    def _try(self, scope: Scope, token: str) -> int | None:
        """None: the token is right; else the seconds that its address should wait."""
        address = str((scope.get("client") or ("",))[0])
        is_right = hmac.compare_digest(token.encode(), self._token.encode())
        if not is_right and (wait := self._tries.wait(address)):
            return wait
        self._tries.count(address, is_right=is_right)
        return None if is_right else self._tries.wait(address)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), own_path(scope["path"])
        if not self._is_meant_for_us(headers.get("host", "")):
            return JSONResponse({"error": "this address is not served here"}, 421)
        reads = scope["method"] in ("GET", "HEAD")
        if scope["path"] == "/login" or (reads and scope["path"].startswith(OPEN)):
            is_foreign = not reads and not _is_of_own_page(headers, with_script=False)
            return JSONResponse({"error": _FOREIGN}, 403) if is_foreign else None
        if not reads and (path not in ACTIONS or scope["method"] != "POST"):
            allowed = {"Allow": ACTIONS.get(path, "GET, HEAD")}
            return JSONResponse({"error": "pages can only be read"}, 405, headers=allowed)
        is_page = reads and not path.startswith("/api/")
        if is_page and (link := QueryParams(scope["query_string"]).get(LINK)):
            # As a picture of another site it would use up the tries of who looks at that.
            is_opened = headers.get("sec-fetch-dest", "document") == "document"
            return self.enter(scope, link, scope["path"]) if is_opened else JSONResponse({"error": _FOREIGN}, 403)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            # No page of another site can know the token: who sends it is asked nothing else.
            wait = self._try(scope, given)
            if wait is None:
                return None
            if wait:
                return JSONResponse({"error": _TOO_MANY.format(wait)}, 429, headers={"Retry-After": str(wait)})
        elif self._has_session(headers):
            own = headers.get(OWN_HEADER) == "1" and _is_of_own_page(headers, with_script=True)
            return None if reads or own else JSONResponse({"error": _FOREIGN}, 403)
        elif is_page:
            return RedirectResponse("/login", 303)
        return JSONResponse({"error": "the token is missing or wrong"}, 401, headers={"WWW-Authenticate": "Bearer"})

    def _is_meant_for_us(self, given: str) -> bool:
        host = _without_port(given).lower()
        return host in self._hosts or ip_address(host) is not None

    def _has_session(self, headers: Headers) -> bool:
        try:
            kept = SimpleCookie(headers.get("cookie", "")).get(cookie_name(headers))
        except CookieError:
            return False
        return kept is not None and hmac.compare_digest(kept.value.encode(), self._session.encode())


_FOREIGN = "this was asked by the page of another site"
_TOO_MANY = "too many wrong tokens came from this address: show the right one, or wait {} s"


def own_path(path: str) -> str:
    """Return the path within its project, wherever on the board that is."""
    return "/" + path.removeprefix(BOARD).partition("/")[2] if path.startswith(BOARD) else path


def login_page(notice: str = "", status: int = 200, **headers: str) -> Response:
    """Return the form that asks for the token."""
    text = (STATIC / "login.html").read_text(encoding="utf-8")
    shown = f'<p class="notice" role="alert">{escape(notice)}</p>' if notice else ""
    return HTMLResponse(text.replace("<!-- notice -->", shown), status, headers)


def cookie_name(headers: Headers) -> str:
    """Cookies know no port: those of two dashboards on one machine have different names."""
    return f"headrace_ui_{headers.get('host', '').rpartition(']')[2].partition(':')[2] or 'default'}"


def _is_of_own_page(headers: Headers, *, with_script: bool) -> bool:
    """Whether a page of ours has sent it, by a script or as its form; programs send neither header."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    is_own = origin is not None and origin.partition("://")[2] == headers.get("host", "")
    if with_script:
        return is_own and site in (None, "same-origin")
    # The browser names no origin of a form whose page sends no referrer.
    return site in ("same-origin", "none") if site is not None else is_own or origin is None


def _network(address: str) -> str:
    """Return what one sender has: an address, of IPv6 a network of 64 bits."""
    ip = ip_address(address)
    return address if ip is None or ip.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
