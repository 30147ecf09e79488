"""One driver a query: a lock on a file in the storage, which the kernel takes back when the process is gone.

It is known before the start, unlike the epoch in the sink's database, which fences off an older driver at its next
batch. The fence remains for storages without such locks and for copies of a storage. Beyond this machine a lease takes
the place of the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from headrace.errors import CheckFailed, CheckpointError, Finding, LeaseLost, PlatformError
from headrace.generations import lease
from headrace.generations.identity import register_query
from headrace.generations.layout import layout_named, layout_of_entry
from headrace.generations.lease import Holder, Lease
from headrace.model import Project, Query
from headrace.storage.private import writing_to
from headrace.storage.remote import store_at

NAME = "driver.lock"
REBUILDS = "rebuild.lock"
LEASES = ".leases"


@dataclass
class _Held:
    """give_back: lets others have the lock. lease: it stands for the lock. times: how often this process holds it."""

    give_back: Callable[[], None]
    lease: Lease | None = None
    times: int = 1


# By the path of the lock's file. A query that halts between two batches is started again before its first start has
# ended.
_held: dict[str, _Held] = {}
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
            held = _held[self.path]
            held.times -= 1
            if not held.times:
                del _held[self.path]
                held.give_back()

    def require_held(self, query: Query) -> None:
        """Raise LeaseLost if another process has taken the right: a lease that is not renewed ends."""
        held = _held.get(self.path)
        if held is None or held.lease is None:
            return
        with writing_to(held.lease.folder):
            is_held = held.lease.is_held
        if not is_held:
            fault = (
                f"this process was stopped for longer than its lease on query '{query.name}' lasts, and another one "
            )
            fault += "has worked on the query since"
            raise LeaseLost(code="HR526", what=fault, fix=f"look how it stands: headrace status {query.name}")


def require_held(project: Project, query: Query) -> None:
    """As `DriverLock.require_held`, of the lock of `query` that this process has taken, if it has."""
    DriverLock(str(_file(project, query))).require_held(query)


def take(project: Project, query: Query, *, rebuilds: bool = False) -> DriverLock | None:
    """The lock of `query`; None where its storage has no locks, or it keeps nothing there.

    rebuilds: the lock of what rebuilds it, which may run meanwhile. A first start registers the query. Raises
    CheckFailed if another process holds it, PlatformError if its file cannot be written, and as `register_query`.
    """
    if not query.sink.facts.durable:
        return None
    entry = register_query(project, query)
    rebuilds = rebuilds or project.rebuilds == query.name
    folder = layout_of_entry(project.storage, query.name, entry).folder
    file = folder / (REBUILDS if rebuilds else NAME)
    path = str(file)
    with _guard:
        if path in _held:
            _held[path].times += 1
            return DriverLock(path)
        if not store_at(file).has_locks:
            taken = _take_lease(query, file, rebuilds)
            _held[path] = _Held(taken.release, taken)
            return DriverLock(path)
        with writing_to(file.parent):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            finding = (_rebuilding if rebuilds else _running)(query, _holder(descriptor))
            os.close(descriptor)
            raise CheckFailed(finding) from error
        except OSError:
            os.close(descriptor)
            return None
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(Holder.here(_now()))).encode(), 0)
        _held[path] = _Held(partial(_unlock, descriptor))
        return DriverLock(path)


def _unlock(descriptor: int) -> None:
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
    os.close(descriptor)


def _take_lease(query: Query, file: Path, rebuilds: bool) -> Lease:
    """Take the lease that stands for a lock."""
    folder = file.with_name(file.name + LEASES)
    with writing_to(folder):
        try:
            return lease.take(folder, _now())
        except lease.LeaseHeld as held:
            who = "another process" if held.holder is None else _name_of(asdict(held.holder))
            silence = f"{lease.LEASE_SECONDS:.0f} s of silence end it"
            who += f" (it renewed its lease {held.seconds:.0f} s ago; {silence})"
            raise CheckFailed(_rebuilding(query, who) if rebuilds else _running(query, who)) from held


def seen(project: Project, query: Query) -> str | None:
    """Who runs `query`, as far as the storage shows; nothing is changed."""
    file = _file(project, query)
    if not store_at(file).has_locks:
        holder = lease.seen(file.with_name(file.name + LEASES))
        return None if holder is None else _name_of(asdict(holder))
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def is_held_here(project: Project, query: Query) -> bool:
    """Whether this very process runs `query`."""
    with _guard:
        return str(_file(project, query)) in _held


def require_one_free(project: Project, queries: Sequence[Query]) -> None:
    """Raise CheckFailed if other processes run all of `queries`: then there is nothing to start Spark for."""
    findings = list(_list_taken(project, queries))
    if findings and len(findings) == len(queries):
        raise CheckFailed(findings)


def _list_taken(project: Project, queries: Sequence[Query]) -> Iterator[Finding]:
    for query in queries:
        # A lease is several files; to see that it is free is enough here.
        if not store_at(project.storage).has_locks and not is_held_here(project, query):
            if query.sink.facts.durable and (who := seen(project, query)) is not None:
                yield _running(query, who)
            continue
        try:
            lock = take(project, query)
        except CheckFailed as error:
            yield from error.findings
        except (PlatformError, CheckpointError):
            continue  # Its own start says so.
        else:
            if lock is not None:
                lock.release()


def _running(query: Query, who: str) -> Finding:
    return Finding(
        code="HR526",
        what=f"query '{query.name}' is already running as {who}",
        fix=f"let it run, or stop it first (headrace stop {query.name}, or Ctrl-C where it runs): "
        "its running batch finishes, and nothing is lost",
        where=query.where,
    )


def _rebuilding(query: Query, who: str) -> Finding:
    return Finding(
        code="HR571",
        what=f"query '{query.name}' is already being rebuilt by {who}",
        fix=f"let it end, and watch it: headrace change status {query.name}; or stop it first by Ctrl-C or SIGTERM",
        where=query.where,
    )


def _holder(descriptor: int) -> str:
    who = "another process"
    with suppress(OSError, ValueError, KeyError, TypeError):
        who = _name_of(json.loads(os.pread(descriptor, 4096, 0)))
    return who


def _name_of(holder: Mapping[str, Any]) -> str:
    host = "" if holder["host"] == socket.gethostname() else f" on {holder['host']}"
    return f"process {holder['pid']}{host} since {holder['started']}"


def _file(project: Project, query: Query) -> Path:
    name = REBUILDS if project.rebuilds == query.name else NAME
    return layout_named(project.storage, query.name, query.renamed_from).folder / name


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
