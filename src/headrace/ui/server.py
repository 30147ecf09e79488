"""Serve the dashboard: until it is interrupted, or during a run until that ends."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, PlatformError
from headrace.export import serving
from headrace.export.serving import url_address
from headrace.model import Project
from headrace.model.operations import LOOPBACK

if TYPE_CHECKING:
    from typing import TypeAlias

    import uvicorn

    from headrace.ui.listed import Listed
    from headrace.ui.shown import ShownProject

    Shown: TypeAlias = Project | ShownProject | Sequence[Listed]

PORT = 8470
TOKEN_VARIABLE = "HEADRACE_UI_TOKEN"
TOKEN_SHORTEST = 16


@dataclass(frozen=True, kw_only=True)
class ServedAddress:
    """Where the dashboard is served, and what a reader has to show.

    names: further names by which a proxy in front of it asks. token: what a reader has to show; without one, a new one
    is made, which is part of the link. certificate, key: files for TLS.
    """

    host: str = LOOPBACK[0]
    port: int = PORT
    names: tuple[str, ...] = ()
    token: str = field(default="", repr=False)
    certificate: Path | None = None
    key: Path | None = None

    @property
    def only_here(self) -> bool:
        """Whether it can be reached from this machine alone."""
        return self.host in LOOPBACK

    def hosts(self) -> Collection[str]:
        """Return the names by which it may be asked."""
        if self.only_here:
            return {*LOOPBACK, *self.names}
        return {*LOOPBACK, *self.names, self.host, socket.gethostname(), socket.getfqdn()}

    def url(self, port: int) -> str:
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{url_address(self.host, port)}/"


def serve(project: Shown, address: ServedAddress, ready: Callable[[str], object]) -> None:
    """Serve until interrupted; `ready` gets the link. Raises HeadraceError if it cannot be served so."""
    with _prepare(project, address) as (server, bound, link):
        ready(link)
        server.run(sockets=[bound])


@contextmanager
def serve_in_background(project: Shown, address: ServedAddress) -> Iterator[str]:
    """Serve while the block runs, in a thread of its own; gives the link. Raises HeadraceError as `serve` does."""
    with _prepare(project, address) as (server, bound, link), serving.serve_in_thread(server, bound, "dashboard"):
        yield link


@contextmanager
def _prepare(project: Shown, address: ServedAddress) -> Iterator[tuple[uvicorn.Server, socket.socket, str]]:
    require_extra()
    require_closed(address)
    from headrace.ui.app import application
    from headrace.ui.guard import LINK
    from headrace.ui.verifying import Verifying

    verifying: list[Verifying] = []

    def make_verifying(shown: Project) -> Verifying:
        verifying.append(Verifying(shown))
        return verifying[-1]

    bound = _bind(address)
    secure, made = address.certificate is not None, "" if address.token else secrets.token_urlsafe(24)
    app = application(
        project, hosts=address.hosts(), token=address.token or made, secure=secure, verifying=make_verifying
    )
    with bound:
        try:
            server = serving.server_of(
                app,
                # A request may claim to come from another address: only a proxy is believed.
                proxy_headers=bool(address.names),
                ssl_certfile=address.certificate,
                ssl_keyfile=address.key,
            )
        except OSError as error:
            problem = f"the certificate {address.certificate} cannot be used: {error.strerror or error}"
            fix = "give --certificate and --key two PEM files that belong together"
            raise PlatformError(code="HR892", what=problem, fix=fix) from error
        try:
            yield (
                server,
                bound,
                address.url(bound.getsockname()[1]) + (f"?{LINK}={made}" if made else ""),
            )
        finally:
            for one in verifying:
                one.close()


def require_extra() -> None:
    """Raise PlatformError where the packages are missing."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        problem = f"the dashboard needs the package {' and '.join(missing)}, which is not installed"
        raise PlatformError(code="HR011", what=problem, fix="install the extra: pip install 'headrace[ui]'")


def require_closed(address: ServedAddress) -> None:
    """Raise HeadraceError for no address, and where others could read without a token, or the token by the way."""
    try:
        socket.getaddrinfo(address.host, address.port)
    except (OSError, UnicodeError):
        problem = f"'{address.host}' is not an address of this machine, so that the dashboard cannot be served there"
        fix = "give an IP address or a name of this machine, as 127.0.0.1 or 0.0.0.0; the port has --port of its own"
        raise PlatformError(code="HR892", what=problem, fix=fix) from None
    fix = f"set {TOKEN_VARIABLE} to {TOKEN_SHORTEST} characters or more, or leave it out"
    if address.token and len(address.token) < TOKEN_SHORTEST:
        raise _refusal(f"the token in {TOKEN_VARIABLE} is short enough to be guessed", fix)
    if (address.names or not address.only_here) and not address.token:
        reached, option = (f"at {address.host}", "--address")
        if address.only_here:
            reached, option = f"by the name {address.names[0]}", "--name"
        fix = f"set {TOKEN_VARIABLE} to {TOKEN_SHORTEST} characters or more, or leave {option} out"
        raise _refusal(f"the dashboard could be read by others {reached}, and no token is set", fix)
    if bool(address.certificate) != bool(address.key):
        raise _refusal("TLS needs a certificate and its key", "give both --certificate and --key")
    if not address.only_here and not address.certificate:
        raise _refusal(
            f"at {address.host} the token and every page would pass the network unencrypted",
            "give --certificate and --key, or leave --address out and let a proxy with TLS ask by --name",
        )


def _refusal(what: str, fix: str) -> HeadraceError:
    return HeadraceError(code="HR891", what=what, fix=fix)


def _bind(address: ServedAddress) -> socket.socket:
    return serving.bind(
        "the dashboard",
        address.host,
        address.port,
        other_port="name another port with --port, or of a run with --ui-port; 0 takes a free one",
        other_address="give --address an address of this machine, as 127.0.0.1 or 0.0.0.0",
    )
