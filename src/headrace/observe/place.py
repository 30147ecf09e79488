"""Where the sockets of running applications lie, each named by its process."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# The kernel takes 107 bytes of a path under Linux and 103 under macOS.
LONGEST_PATH = 100
_SOCKET, _ELSEWHERE = ".sock", ".place"


def control_directory(storage: Path) -> Path:
    """The directory of the sockets of those that run out of a storage directory."""
    return storage / "control"


def listen(storage: Path, pid: int) -> tuple[socket.socket, Path]:
    """A listening socket that only this user can open, and its path; raises OSError.

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
            return _bound(path), path
    place = _private(pid)
    try:
        bound = _bound(place / f"{pid}{_SOCKET}")
        (home / f"{pid}{_ELSEWHERE}").write_text(str(place / f"{pid}{_SOCKET}"), encoding="utf-8")
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return bound, place / f"{pid}{_SOCKET}"


def _private(pid: int) -> Path:
    """A new private directory for temporary files, the first whose path is short enough where there is one."""
    longest = len(f"/headrace-control-xxxxxxxx/{pid}{_SOCKET}")
    homes = (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp")
    fit = (home for home in homes if os.path.isdir(home) and len(os.fsencode(home)) + longest <= LONGEST_PATH)
    return Path(tempfile.mkdtemp(prefix="headrace-control-", dir=next(fit, None)))


def sockets(storage: Path) -> Iterator[tuple[int, Path]]:
    """The process and the path of every socket that is there, also of processes that are gone."""
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


def _bound(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.bind(str(path))
        path.chmod(0o600)
        found.listen()
    except BaseException:
        found.close()
        raise
    return found
