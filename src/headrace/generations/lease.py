"""The right to run a query over storage that several machines reach: numbered records, written once, with a lease.

A lock of the kernel ends with its process; a store knows no processes. So the driver that runs writes a record with the
next number, of which a store lets one be the first, and writes now and then that it still lives. The times that are
compared are the store's own, not those of two machines' clocks.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.generations.processes import birth
from headrace.storage.durable import create_file, replace_file
from headrace.storage.numbered import create, file_of, numbers_in

LEASE_SECONDS = 60.0
RENEW_SECONDS = 10.0
_ALIVE, _FREE = ".alive", ".free"
# The records that this process renews. Another one of its own is left from a time when the store was away: it could not
# be released, or the answer of its creation was lost.
_live: set[tuple[str, int]] = set()
_taking = threading.RLock()


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
                    _tell(self.folder, self._number)


def take(folder: Path, started: str) -> Lease:
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


def seen(folder: Path) -> Holder | None:
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


def _tell(folder: Path, number: int) -> None:
    replace_file(file_of(folder, number, _ALIVE), "")
