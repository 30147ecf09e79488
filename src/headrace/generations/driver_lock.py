"""One driver a query: by a lock of the kernel, or by a lease where the storage has no locks.

The kernel takes a lock on a file back when the process is gone. It is known before the start, unlike the epoch in the
sink's database, which fences off an older driver at its next batch. The fence remains for storages without such locks
and for copies of a storage.

A store that several machines reach knows no processes. So the driver that runs writes a record with the next number, of
which a store lets one be the first, and writes now and then that it still lives. The times that are compared are the
store's own, not those of two machines' clocks.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from headrace.errors import CheckFailed, CheckpointError, Finding, HeadraceError, LeaseLost, PlatformError
from headrace.generations.register import layout_named, layout_of_entry, register_query
from headrace.model import Project, Query
from headrace.storage.durable import create_file, replace_file
from headrace.storage.numbered import create, file_of, numbers_in
from headrace.storage.private import writing_to
from headrace.storage.remote import store_at

NAME = "driver.lock"
REBUILDS = "rebuild.lock"
LEASES = ".leases"
# By the path of the lock's file. A query that halts between two batches is started again before its first start has
# ended.
_held: dict[str, _Held] = {}
_guard = threading.Lock()
LEASE_SECONDS = 60.0
RENEW_SECONDS = 10.0
_ALIVE, _FREE = ".alive", ".free"
# The records that this process renews. Another one of its own is left from a time when the store was away: it could not
# be released, or the answer of its creation was lost.
_live: set[tuple[str, int]] = set()
_taking = threading.RLock()
_START_TIME = 19  # the 22nd field of /proc/<pid>/stat, counted after the name in brackets, which may hold anything


@dataclass
class _Held:
    """give_back: lets others have the lock. lease: it stands for the lock. times: how often this process holds it."""

    give_back: Callable[[], None]
    lease: Lease | None = None
    times: int = 1


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


def require_held(project: Project, query: Query, folder: Path) -> None:
    """As `DriverLock.require_held`, of the lock in the query's `folder`, if this process has taken it.

    The register does not say where it is: the process that has the right now may have renamed the query.
    """
    DriverLock(str(folder / _lock_name(project, query))).require_held(query)


@contextmanager
def starting(project: Project, query: Query) -> Iterator[DriverLock | None]:
    """Hold the lock of `query` for a start, and give it back if that fails. Raises as `take`, and LeaseLost."""
    lock = take(project, query)
    try:
        yield lock
    except BaseException as error:
        if lock is not None:
            try:
                if isinstance(error, HeadraceError):
                    # Of a process that was stopped for long, that is the fault: others have changed what it found.
                    lock.require_held(query)
            finally:
                lock.release()
        raise


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
            taken = _lease_lock(query, file, rebuilds)
            _held[path] = _Held(taken.release, taken)
            return DriverLock(path)
        with writing_to(file.parent):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            finding = _lock_fault(query, _holder(descriptor), rebuilds=rebuilds)
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


def _lease_lock(query: Query, file: Path, rebuilds: bool) -> Lease:
    """Take the lease that stands for a lock."""
    folder = file.with_name(file.name + LEASES)
    with writing_to(folder):
        try:
            return take_lease(folder, _now())
        except LeaseHeld as held:
            who = "another process" if held.holder is None else _name_of(asdict(held.holder))
            silence = f"{LEASE_SECONDS:.0f} s of silence end it"
            who += f" (it renewed its lease {held.seconds:.0f} s ago; {silence})"
            raise CheckFailed(_lock_fault(query, who, rebuilds=rebuilds)) from held


def find_driver(project: Project, query: Query) -> str | None:
    """Who runs `query`, as far as the storage shows; nothing is changed."""
    file = _file(project, query)
    if not store_at(file).has_locks:
        holder = lease_holder(file.with_name(file.name + LEASES))
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
            if query.sink.facts.durable and (who := find_driver(project, query)) is not None:
                yield _lock_fault(query, who)
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


def _lock_fault(query: Query, who: str, *, rebuilds: bool = False) -> Finding:
    if rebuilds:
        code, problem = "HR571", f"query '{query.name}' is already being rebuilt by {who}"
        fix = f"let it end, and watch it: headrace change status {query.name}; or stop it first by Ctrl-C or SIGTERM"
    else:
        code, problem = "HR526", f"query '{query.name}' is already running as {who}"
        fix = f"let it run, or stop it first (headrace stop {query.name}, or Ctrl-C where it runs): "
        fix += "its running batch finishes, and nothing is lost"
    return Finding(code=code, what=problem, fix=fix, where=query.where)


def _holder(descriptor: int) -> str:
    who = "another process"
    with suppress(OSError, ValueError, KeyError, TypeError):
        who = _name_of(json.loads(os.pread(descriptor, 4096, 0)))
    return who


def _name_of(holder: Mapping[str, Any]) -> str:
    host = "" if holder["host"] == socket.gethostname() else f" on {holder['host']}"
    return f"process {holder['pid']}{host} since {holder['started']}"


def _file(project: Project, query: Query) -> Path:
    return layout_named(project.storage, query.name, query.renamed_from).folder / _lock_name(project, query)


def _lock_name(project: Project, query: Query) -> str:
    return REBUILDS if project.rebuilds == query.name else NAME


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who has the right: a process, since when."""

    pid: int
    birth: str | None
    host: str
    started: str

    @classmethod
    def here(cls, started: str) -> Holder:
        pid = os.getpid()
        return cls(pid=pid, birth=birth(pid), host=socket.gethostname(), started=started)

    @property
    def is_known_dead(self) -> bool:
        """Whether it was a process of this machine that has ended."""
        return self.host == socket.gethostname() and (self.birth is None or birth(self.pid) != self.birth)

    @property
    def is_here(self) -> bool:
        """Whether it is this process."""
        return self == Holder.here(self.started)


class LeaseHeld(Exception):
    """Another process has the right; `seconds`: how long ago it last renewed it."""

    def __init__(self, holder: Holder | None, seconds: float) -> None:
        self.holder = holder
        self.seconds = seconds
        super().__init__("held")


class Lease:
    """The record of this process in `folder`; renewed until it is released."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self._number = number
        self._over = threading.Event()
        _live.add((str(folder), number))
        threading.Thread(target=self._renew, name=f"lease-{folder.parent.name}", daemon=True).start()

    @property
    def is_held(self) -> bool:
        """Whether no other process has taken the right since: of a process that was stopped for long it may be over."""
        return numbers_in(self.folder)[-1:] == [self._number]

    def release(self) -> None:
        """Let others run the query. Raises nothing: a lease that cannot be ended ends by itself."""
        self._over.set()
        _live.discard((str(self.folder), self._number))
        _end(self.folder, self._number)

    def _renew(self) -> None:
        while not self._over.wait(RENEW_SECONDS):
            # A store that is away for a while may be back before the lease has ended.
            with suppress(OSError, HeadraceError):
                if file_of(self.folder, self._number).exists() and not self._over.is_set():
                    _mark_alive(self.folder, self._number)


def take_lease(folder: Path, started: str) -> Lease:
    """The right over `folder`. Raises Held, OSError, and PlatformError where the store does not answer."""
    with _taking:
        while True:
            numbers = numbers_in(folder)
            newest = max(numbers, default=0)
            if newest:
                _require_over(folder, newest)
            mine = newest + 1
            if not create(folder, mine, {"holder": asdict(Holder.here(started))}):
                continue
            try:
                is_late = max(numbers_in(folder)) > mine
            except (OSError, HeadraceError):
                _end(folder, mine)
                raise
            # Where the number was free again, others have taken later ones, and cleaned up behind them, meanwhile.
            # What cannot be removed now is removed with the next lease: the newest record alone counts.
            with suppress(OSError, HeadraceError):
                for number in [mine] if is_late else numbers:
                    _remove(folder, number)
            if not is_late:
                return Lease(folder, mine)


def lease_holder(folder: Path) -> Holder | None:
    """Who has the right over `folder`, as far as it is known; nothing is changed but for a file that asks the time."""
    newest = max(numbers_in(folder), default=0)
    try:
        if newest:
            _require_over(folder, newest)
    except LeaseHeld as held:
        return held.holder
    return None


def _require_over(folder: Path, number: int) -> None:
    """Raise Held unless the holder of a record is known to be gone, or has not renewed it for long."""
    record = file_of(folder, number)
    if file_of(folder, number, _FREE).exists():
        return
    try:
        holder = Holder(**json.loads(record.read_text())["holder"])
    except FileNotFoundError:
        return
    except (ValueError, TypeError, KeyError):
        holder = None
    if holder is not None and (holder.is_known_dead or (holder.is_here and (str(folder), number) not in _live)):
        return
    probe = folder / f".probe.{uuid.uuid4().hex[:12]}"
    probe.write_text("")
    try:
        now = probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
    times = [_time_of(file_of(folder, number, _ALIVE)), _time_of(record)]
    silent = now - max(times)
    if silent <= LEASE_SECONDS:
        raise LeaseHeld(holder, silent)


def _end(folder: Path, number: int) -> None:
    # The record stays, so that no number is given twice.
    with suppress(OSError, HeadraceError):
        create_file(file_of(folder, number, _FREE), "")


def _remove(folder: Path, number: int) -> None:
    for file in (file_of(folder, number, _ALIVE), file_of(folder, number, _FREE), file_of(folder, number)):
        file.unlink(missing_ok=True)


def _time_of(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _mark_alive(folder: Path, number: int) -> None:
    replace_file(file_of(folder, number, _ALIVE), "")


def birth(pid: int) -> str | None:
    """A mark of when the process began, the same each time it is asked for; None when there is no such process.

    A zombie counts as gone: it has ended, and only its parent has not asked how.
    """
    return _from_proc(pid) if Path("/proc/self/stat").exists() else _from_ps(pid)


def _from_proc(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return None if fields[0] in "ZX" else f"{_boot()}/{fields[_START_TIME]}"


def _from_ps(pid: int) -> str | None:
    listed = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, started = listed.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def _boot() -> str:
    """Start times count from the machine's boot, so the boot belongs to the mark."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""
