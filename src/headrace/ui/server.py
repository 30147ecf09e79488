"""Serve the dashboard: until it is interrupted, or beside a run until that ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import Finding, HeadraceError, PlatformError
from headrace.model import Project
from headrace.model.operations import LOOPBACK
from headrace.operate.address import asked_at, family

if TYPE_CHECKING:
    import uvicorn

PORT = 8470
TOKEN_VARIABLE = "HEADRACE_UI_TOKEN"
TOKEN_SHORTEST = 16
CLOSING_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where it is served, and what is asked of whoever reads.

    names: further names that a proxy in front of it asks by. certificate, key: files for TLS.
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
        """The names by which it may be asked."""
        if self.only_here:
            return {*LOOPBACK, *self.names}
        return {*LOOPBACK, *self.names, self.host, socket.gethostname(), socket.getfqdn()}

    def url(self, port: int) -> str:
        """How a browser asks for it."""
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{asked_at(self.host, port)}/"


def serve(project: Project, address: Address, ready: Callable[[str], object]) -> None:
    """Serve until interrupted; `ready` is told the URL. Raises HeadraceError where it cannot be served so."""
    with _prepared(project, address) as (server, bound):
        ready(address.url(bound.getsockname()[1]))
        server.run(sockets=[bound])


@contextmanager
def beside(project: Project, address: Address) -> Iterator[str]:
    """Serve while the block runs, in a thread of its own; gives the URL. Raises HeadraceError as `serve` does."""
    with _prepared(project, address) as (server, bound):
        # Who asks at once waits for the thread.
        bound.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="dashboard", daemon=True)
        thread.start()
        try:
            yield address.url(bound.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(CLOSING_SECONDS)


@contextmanager
def _prepared(project: Project, address: Address) -> Iterator[tuple[uvicorn.Server, socket.socket]]:
    require_extra()
    refuse_open(address)
    import uvicorn

    from headrace.ui.app import application
    from headrace.ui.verifying import Verifying

    bound, verifying = _bound(address), Verifying(project)
    secure = address.certificate is not None
    app = application(project, hosts=address.hosts(), token=address.token, secure=secure, verifying=verifying)
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="off",
        # Pages that are open hold a connection each, which ends with the server.
        timeout_graceful_shutdown=1,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
    )
    with bound:
        try:
            config.load()
        except OSError as error:
            what = f"the certificate {address.certificate} cannot be used: {error.strerror or error}"
            fix = "give --certificate and --key two PEM files that belong together"
            raise PlatformError(Finding(code="HR892", what=what, fix=fix)) from error
        try:
            yield uvicorn.Server(config), bound
        finally:
            verifying.close()


def require_extra() -> None:
    """Raise PlatformError where the packages are missing."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        what = f"the dashboard needs the package {' and '.join(missing)}, which is not installed"
        raise PlatformError(Finding(code="HR890", what=what, fix="install the extra: pip install 'headrace[ui]'"))


def refuse_open(address: Address) -> None:
    """Raise HeadraceError where others than this machine could read without a token, or the token by the way."""
    fix = f"set {TOKEN_VARIABLE} to {TOKEN_SHORTEST} characters or more, or leave --address out"
    if address.token and len(address.token) < TOKEN_SHORTEST:
        raise _refused(f"the token in {TOKEN_VARIABLE} is short enough to be guessed", fix)
    if (address.names or not address.only_here) and not address.token:
        reached = f"by the name {address.names[0]}" if address.only_here else f"at {address.host}"
        raise _refused(f"the dashboard could be read by others {reached}, and no token is set", fix)
    if bool(address.certificate) != bool(address.key):
        raise _refused("TLS needs a certificate and its key", "give both --certificate and --key")
    if not address.only_here and not address.certificate:
        raise _refused(
            f"at {address.host} the token and every page would pass the network in the clear, for anybody to read",
            "give --certificate and --key, or leave --address out and let a proxy with TLS ask by --name",
        )


def _refused(what: str, fix: str) -> HeadraceError:
    return HeadraceError(Finding(code="HR891", what=what, fix=fix))


def _bound(address: Address) -> socket.socket:
    found = socket.socket(family(address.host), socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address.host, address.port))
    except OSError as error:
        found.close()
        what = f"the dashboard cannot be served at {address.host}:{address.port}: {error.strerror or error}"
        fix = "name another port with --port, or --ui-port beside a run; 0 takes a free one"
        raise PlatformError(Finding(code="HR892", what=what, fix=fix)) from error
    return found
