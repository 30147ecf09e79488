"""The socket of a running application: it reports the states of its queries, takes orders, and publishes events.

One request for each connection, a line of JSON; each answer is a line of JSON. A client that asks nothing, or does not
read, keeps no other client out. `hello` names the process and its queries,
`stop` without a query stops the application, `deploy` brings a changed project to it, the other verbs are orders for a
query, and `follow` gives every event until the end.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.control.board import VERBS, Board, Order, OrderAnswer, Orders
from headrace.control.deploys import DeployRequest
from headrace.errors import Finding
from headrace.generations.driver_lock import birth
from headrace.redaction import redacted

LONGEST_REQUEST = 65_536
REQUEST_SECONDS = 5.0
# One more that has connected, and the oldest of those that have asked nothing yet is let go.
MOST_SILENT = 64
# How long a follower may read nothing once the kernel's buffer is full.
SEND_SECONDS = 30.0
EVENTS_HELD = 10_000
ALREADY_STOPPING = "already stopping"


class ControlServer:
    """Listens until closed; each connection has a thread of its own.

    stop: asks the application to stop, at once or after its running batches; returns whether it was stopping already.
    begin_again: lets it stop after its running batches and begin again; it gets the connection on which the new start
    answers. owns_process: whether the process should end with the application.
    """

    def __init__(
        self,
        storage: Path,
        *,
        project: str,
        board: Board,
        orders: Orders,
        stop: Callable[[bool], bool],
        owns_process: bool,
        begin_again: Callable[[int, DeployRequest], None] | None = None,
    ) -> None:
        self._storage, self._board, self._orders, self._stop = storage, board, orders, stop
        self._begin_again = begin_again
        self._facts = {"pid": os.getpid(), "birth": birth(os.getpid()), "project": project, "owns": owns_process}
        self._followers: list[queue.Queue[str | None]] = []
        self._silent: list[socket.socket] = []
        self._closing = False
        self._guard = threading.Lock()
        self._socket, self._path = listen(storage, os.getpid())
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def publish(self, event: str, facts: Mapping[str, Any]) -> None:
        """Send an event to all followers; one that does not keep up is dropped."""
        with self._guard:
            if not self._followers:
                return
            line = redacted(json.dumps({"event": event, **facts}, default=str, ensure_ascii=False))
            for follower in list(self._followers):
                try:
                    follower.put_nowait(line)
                except queue.Full:
                    self._followers.remove(follower)

    @property
    def is_followed(self) -> bool:
        return bool(self._followers)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._closing = True
        with suppress(OSError):
            # A thread that waits in accept is woken by this, and not by close alone.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._guard:
            for follower in self._followers:
                with suppress(queue.Full):
                    follower.put_nowait(None)
            self._followers.clear()
        clear(self._storage, os.getpid())

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                with self._guard:
                    self._silent.append(connection)
                    for oldest in self._silent[:-MOST_SILENT]:
                        with suppress(OSError):
                            oldest.shutdown(socket.SHUT_RDWR)
                    del self._silent[:-MOST_SILENT]
                threading.Thread(target=self._serve, args=(connection,), name="control of one", daemon=True).start()
            except (OSError, RuntimeError):
                if self._closing:
                    return
                # No file or thread is left for one more: those that are there end soon.
                time.sleep(0.1)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            try:
                if not is_own(connection):
                    return
                request = _request(connection)
            finally:
                with self._guard, suppress(ValueError):
                    self._silent.remove(connection)
            connection.settimeout(SEND_SECONDS)
            if request is None:
                _answer(connection, OrderAnswer(finding=_not_understood("it is not a line of JSON")).as_dict())
            else:
                self._do(connection, request)

    def _do(self, connection: socket.socket, request: Mapping[str, Any]) -> None:
        verb, query, by = request.get("do"), request.get("query"), str(request.get("by", ""))[:200]
        if verb == "hello":
            states = {name: state.as_dict() for name, state in self._board.states().items()}
            _answer(connection, {**self._facts, "queries": states})
        elif verb == "follow":
            self._follow(connection)
        elif verb == "stop" and query is None:
            already = self._stop(bool(request.get("now")))
            _answer(connection, OrderAnswer(said=ALREADY_STOPPING if already else "stopping").as_dict())
            self._board.wait(lambda _: False)
            _answer(connection, OrderAnswer(said="the application has stopped").as_dict())
        elif verb == "deploy":
            try:
                deploy = DeployRequest.from_dict(request)
            except (TypeError, ValueError) as error:
                _answer(connection, OrderAnswer(finding=_not_understood(str(error))).as_dict())
                return
            answer = self._orders.give(Order(verb="deploy", by=by, deploy=deploy)).answer.result()
            kept = os.dup(connection.fileno())
            with suppress(OSError):
                _answer(connection, answer.as_dict())
            if self._begin_again is not None and answer.begins_again and not deploy.dry_run:
                self._begin_again(kept, deploy)
            else:
                os.close(kept)
        elif verb in VERBS and isinstance(query, str):
            order = self._orders.give(Order(verb=verb, query=query, by=by))
            _answer(connection, order.answer.result().as_dict())
        else:
            _answer(connection, OrderAnswer(finding=_not_understood(f"it asks for {verb!r}")).as_dict())

    def _follow(self, connection: socket.socket) -> None:
        mine: queue.Queue[str | None] = queue.Queue(EVENTS_HELD)
        with self._guard:
            self._followers.append(mine)
        try:
            _answer(connection, {"event": "following", **self._facts})
            while (line := mine.get()) is not None:
                connection.sendall(line.encode() + b"\n")
        finally:
            with self._guard, suppress(ValueError):
                self._followers.remove(mine)


def is_own(connection: socket.socket) -> bool:
    """Whether the peer is this process's user, or root; without SO_PEERCRED, the socket's path is trusted."""
    if not sys.platform.startswith("linux"):
        return True
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return user in (os.getuid(), 0)


def _request(connection: socket.socket) -> Mapping[str, Any] | None:
    text, until = b"", time.monotonic() + REQUEST_SECONDS
    while not text.endswith(b"\n") and len(text) < LONGEST_REQUEST:
        # For the whole request, however few bytes come at a time.
        connection.settimeout(max(0.001, until - time.monotonic()))
        part = connection.recv(4096)
        if not part:
            break
        text += part
    with suppress(ValueError):
        request = json.loads(text)
        return request if isinstance(request, dict) else None
    return None


def _answer(connection: socket.socket, facts: Mapping[str, Any]) -> None:
    connection.sendall(redacted(json.dumps(facts, default=str, ensure_ascii=False)).encode() + b"\n")


def _not_understood(why: str) -> Finding:
    return Finding(
        code="HR852",
        what=f"the running application does not understand the request: {why}",
        fix="use the version of headrace that the application runs with",
    )


# The kernel takes 107 bytes of a path under Linux and 103 under macOS.
LONGEST_PATH = 100
_SOCKET, _ELSEWHERE = ".sock", ".place"


def control_directory(storage: Path) -> Path:
    """Return the directory of the sockets of those that run out of a storage directory."""
    return storage / "control"


def listen(storage: Path, pid: int) -> tuple[socket.socket, Path]:
    """Return a listening socket that only this user can open, and its path; raises OSError.

    Where the storage's path is too long, or its file system has no sockets, the socket lies in a private directory for
    temporary files, and a file in the storage says where.
    """
    home = control_directory(storage)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)
    clear(storage, pid)
    path = home / f"{pid}{_SOCKET}"
    if len(os.fsencode(path)) <= LONGEST_PATH:
        with suppress(OSError):
            return _bind(path), path
    place = _private(pid)
    try:
        bound = _bind(place / f"{pid}{_SOCKET}")
        (home / f"{pid}{_ELSEWHERE}").write_text(str(place / f"{pid}{_SOCKET}"), encoding="utf-8")
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return bound, place / f"{pid}{_SOCKET}"


def _private(pid: int) -> Path:
    """Return a new private directory for temporary files, the first whose path is short enough where there is one."""
    longest = len(f"/headrace-control-xxxxxxxx/{pid}{_SOCKET}")
    homes = (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp")
    fit = (home for home in homes if os.path.isdir(home) and len(os.fsencode(home)) + longest <= LONGEST_PATH)
    return Path(tempfile.mkdtemp(prefix="headrace-control-", dir=next(fit, None)))


def sockets(storage: Path) -> Iterator[tuple[int, Path]]:
    """Yield the process and the path of every socket that is there, also of processes that are gone."""
    with suppress(OSError):
        for file in sorted(control_directory(storage).iterdir()):
            if file.stem.isdigit() and file.suffix == _SOCKET:
                yield int(file.stem), file
            elif file.stem.isdigit() and file.suffix == _ELSEWHERE:
                with suppress(OSError):
                    yield int(file.stem), Path(file.read_text(encoding="utf-8"))


def clear(storage: Path, pid: int) -> None:
    """Remove what a process of this number has left; only its own user's is."""
    home = control_directory(storage)
    elsewhere = home / f"{pid}{_ELSEWHERE}"
    with suppress(OSError):
        place = Path(elsewhere.read_text(encoding="utf-8")).parent
        if place.name.startswith("headrace-control-") and place.stat().st_uid == os.getuid():
            shutil.rmtree(place, ignore_errors=True)
    for file in (home / f"{pid}{_SOCKET}", elsewhere):
        with suppress(OSError):
            file.unlink()


def _bind(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
        bound.listen()
    except BaseException:
        bound.close()
        raise
    return bound
