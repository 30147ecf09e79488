"""Serve an application over HTTP: its address, its socket, and its thread during a run."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import PlatformError
from headrace.units import ip_address

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLOSING_SECONDS = 5.0


def url_address(host: str, port: int) -> str:
    """Host and port as a URL has them; of what listens at every address of this machine, the machine's name."""
    address = ip_address(host)
    name = socket.gethostname() if address is not None and address.is_unspecified else host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def bind(what: str, host: str, port: int, *, other_port: str, other_address: str) -> socket.socket:
    """Make a socket at this address. A restart finds its port free; one that is in use is refused.

    Args:
        what: What is served, as messages name it.
        other_port: How to name another port.
        other_address: How to name another address.

    Raises:
        PlatformError: The address or the port cannot be used.
    """
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except BaseException as error:
        made.close()
        if not isinstance(error, OSError):
            raise
        is_address = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        raise PlatformError(
            code="HR892",
            what=f"{what} cannot be served at {host}:{port}: {error.strerror or error}",
            fix=other_address if is_address else other_port,
        ) from error
    return made


def server_of(app: Any, **options: Any) -> uvicorn.Server:
    """Make a server that logs neither requests nor closed connections. Raises OSError for a certificate."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="off",
        # Pages that are open hold a connection each, which ends with the server.
        timeout_graceful_shutdown=1,
        **options,
    )
    config.load()
    return uvicorn.Server(config)


def with_headers(app: ASGIApp, headers: Mapping[str, str]) -> ASGIApp:
    """Add `headers` to each answer of `app`."""
    from starlette.datastructures import MutableHeaders

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await app(scope, receive, send_with_headers)

    return serve


@contextmanager
def serve_in_thread(server: uvicorn.Server, made: socket.socket, name: str) -> Iterator[None]:
    """Serve from a thread of its own while the block runs; early requests wait for the thread."""
    made.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [made]}, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(CLOSING_SECONDS)
