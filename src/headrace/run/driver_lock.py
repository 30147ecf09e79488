"""One driver a query: a lock on a file in the storage, which the kernel takes back when the process is gone.

It is known before the start, unlike the epoch in the sink's database, which fences off an older driver at its next
batch. The fence remains for storages without such locks and for copies of a storage.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from headrace.errors import CheckFailed, Finding, PlatformError
from headrace.history.processes import birth
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.storage.faults import writing_to
from headrace.storage.private import make_private

NAME = "driver.lock"
REBUILDS = "rebuild.lock"
# By the path of the lock's file: this process's descriptor of it, and how often it is held. A query that halts between
# two batches is started again before its first start has ended.
_held: dict[str, tuple[int, int]] = {}
_guard = threading.Lock()


@dataclass
class DriverLock:
    """The right of this process to run a query; given back once."""

    path: str
    _released: bool = False

    def release(self) -> None:
        """Let others run the query, unless this process holds the lock elsewhere too."""
        with _guard:
            if self._released or self.path not in _held:
                return
            self._released = True
            descriptor, times = _held[self.path]
            if times > 1:
                _held[self.path] = (descriptor, times - 1)
                return
            del _held[self.path]
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)


def take(project: Project, query: Query, *, rebuilds: bool = False) -> DriverLock | None:
    """The lock of `query`; None where its storage has no locks, or it keeps nothing there.

    rebuilds: the lock of what rebuilds it, beside which it may run. Raises CheckFailed if another process holds it, and
    PlatformError if its file cannot be written.
    """
    if not query.sink.facts.durable:
        return None
    file = _file(project, query, REBUILDS if rebuilds else NAME)
    path = str(file)
    with _guard:
        if path in _held:
            descriptor, times = _held[path]
            _held[path] = (descriptor, times + 1)
            return DriverLock(path)
        with writing_to(file.parent):
            make_private(project.storage)
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            finding = _rebuilding(query, descriptor) if rebuilds else _running(query, descriptor)
            os.close(descriptor)
            raise CheckFailed(finding) from error
        except OSError:
            os.close(descriptor)
            return None
        pid = os.getpid()
        holder = {"pid": pid, "birth": birth(pid), "host": socket.gethostname(), "started": _now()}
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        _held[path] = (descriptor, 1)
        return DriverLock(path)


def is_held_here(project: Project, query: Query) -> bool:
    """Whether this very process runs `query`."""
    with _guard:
        return str(_file(project, query)) in _held


def require_one_free(project: Project, queries: Sequence[Query]) -> None:
    """Raise CheckFailed if other processes run all of `queries`: then there is nothing to start Spark for."""
    findings = list(_taken(project, queries))
    if findings and len(findings) == len(queries):
        raise CheckFailed(findings)


def _taken(project: Project, queries: Sequence[Query]) -> Iterator[Finding]:
    for query in queries:
        try:
            lock = take(project, query)
        except CheckFailed as error:
            yield from error.findings
        except PlatformError:
            continue
        else:
            if lock is not None:
                lock.release()


def _running(query: Query, descriptor: int) -> Finding:
    return Finding(
        code="HR526",
        what=f"query '{query.name}' is already running as {_holder(descriptor)}",
        fix=f"let it run, or stop it first (headrace stop {query.name}, or Ctrl-C where it runs): "
        "its running batch finishes, and nothing is lost",
        where=query.where,
    )


def _rebuilding(query: Query, descriptor: int) -> Finding:
    return Finding(
        code="HR571",
        what=f"query '{query.name}' is already being rebuilt by {_holder(descriptor)}",
        fix=f"let it end, and watch it: headrace rebuild {query.name} --status; or stop it first by Ctrl-C or SIGTERM",
        where=query.where,
    )


def _holder(descriptor: int) -> str:
    who = "another process"
    with suppress(OSError, ValueError, KeyError, TypeError):
        holder = json.loads(os.pread(descriptor, 4096, 0))
        host = "" if holder["host"] == socket.gethostname() else f" on {holder['host']}"
        who = f"process {holder['pid']}{host} since {holder['started']}"
    return who


def _file(project: Project, query: Query, name: str = NAME) -> Path:
    return QueryLayout(project.storage, query.name).home.parent / name


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
