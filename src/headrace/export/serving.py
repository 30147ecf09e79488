"""An application served over HTTP: at which address, by which socket, and in a thread beside the run."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uvicorn

CLOSING_SECONDS = 5.0


def asked_at(host: str, port: int) -> str:
    """Host and port as a URL has them; of what listens at every address of this machine, the machine's name."""
    name = socket.gethostname() if _is_everywhere(host) else host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def bound(host: str, port: int) -> socket.socket:
    """A socket at this address; raises OSError. A restart finds its port free; one that is in use is refused."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made


def server_of(app: Any, **options: Any) -> uvicorn.Server:
    """A server that says nothing of its requests, nor of readers who have gone. Raises OSError for a certificate."""
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


@contextmanager
def beside(server: uvicorn.Server, made: socket.socket, name: str) -> Iterator[None]:
    """Serve while the block runs, in a thread of its own; who asks at once waits for the thread."""
    made.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [made]}, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(CLOSING_SECONDS)


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
