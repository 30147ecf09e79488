"""This machine's disks, by the interface of stores: what was written is there after a crash of the machine, too."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from headrace.storage.store import Store, StoreEntry

# Of Linux's fcntl.h.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_TAIL_BYTES = 65_536
_PIECE_BYTES = 8 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# What lies in a storage directory, and is to be private by itself.
_PRIVATE = (
    *("history.db*", "headrace-crash-*", "register", "register/*"),
    *("queries", "queries/*", "queries/*/*", "queries/*/*/*"),
)


class Disk(Store):
    """The file systems of this machine, mounted ones included."""

    is_local = True
    appends = True
    has_locks = True
    is_safe = False

    def entry(self, path: str) -> StoreEntry:
        return _entry(os.path.basename(path), os.stat(path))

    def listing(self, path: str) -> Sequence[StoreEntry]:
        return [_entry(name, os.stat(os.path.join(path, name))) for name in sorted(os.listdir(path))]

    def names(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries]

    def files_below(self, path: str) -> Iterator[str]:
        for folder, _, names in os.walk(path):
            inside = os.path.relpath(folder, path)
            yield from names if inside == "." else (os.path.join(inside, name) for name in names)

    def size_bytes(self, path: str) -> int:
        total = 0
        for file in [path] if os.path.isfile(path) else (os.path.join(path, name) for name in self.files_below(path)):
            with suppress(OSError):
                total += os.lstat(file).st_size
        return total

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    @contextmanager
    def writing(self, path: str, *, shared: bool = False, private: bool = False) -> Iterator[BinaryIO]:
        with _draft(Path(path), shared=shared, private=private) as (draft, file):
            yield file
            _finish(file)
            os.replace(draft, path)
        self.sync(str(Path(path).parent))

    def put(self, path: str, data: bytes) -> None:
        with self.writing(path) as file:
            file.write(data)

    def append_lines(self, path: str, data: bytes, *, sync: bool = True) -> None:
        is_new = not os.path.exists(path)
        with open(path, "ab") as file:
            if not is_new:
                _end_last_line(path, file)
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if sync and is_new:
            self.sync(str(Path(path).parent))

    def create(self, path: str, data: bytes) -> bool:
        with _draft(Path(path), shared=True) as (draft, file):
            file.write(data)
            _finish(file)
            try:
                # A link is made only where no file is.
                os.link(draft, path)
            except FileExistsError:
                return False
        self.sync(str(Path(path).parent))
        return True

    def copy(self, path: str, new: str) -> None:
        os.makedirs(Path(new).parent, exist_ok=True)
        shutil.copy2(path, new)

    def copy_from(self, other: Store, path: str, new: str) -> None:
        os.makedirs(Path(new).parent, exist_ok=True)
        with open(new, "wb") as file:
            file.writelines(other.pieces(path, _PIECE_BYTES))
        modified_ns = other.entry(path).modified_ms * 1_000_000
        os.utime(new, ns=(modified_ns, modified_ns))

    def link(self, path: str, new: str) -> None:
        os.makedirs(Path(new).parent, exist_ok=True)
        try:
            os.link(path, new)
        except FileExistsError:
            raise
        except OSError:
            self.copy(path, new)

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def make_private(self, path: str) -> None:
        """Also what was made before as open as the umask; what lies deeper is hidden with it."""
        self.make_directory(path)
        # A project that is its own storage is more than that, and belongs to the people who work on it.
        if not os.path.exists(os.path.join(path, "headrace.yml")):
            tighten(Path(path))
        for pattern in _PRIVATE:
            for place in Path(path).glob(pattern):
                tighten(place)

    @contextmanager
    def scratch(self, path: str) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="headrace-", dir=path, ignore_cleanup_errors=True) as place:
            yield place

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        os.rename(path, new)

    def publish(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        made = Path(path)
        for place in (*(sorted(made.rglob("*"), reverse=True) if made.is_dir() else ()), made):
            self.sync(str(place))
        os.replace(path, new)
        self.sync(str(Path(new).parent))

    def exchange(self, path: str, other: str) -> None:
        try:
            renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        except (AttributeError, OSError):
            super().exchange(path, other)
        if renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
            number = ctypes.get_errno()
            # File systems that do not know the flag take it for a wrong one.
            number = errno.ENOTSUP if number in (errno.EINVAL, errno.ENOSYS) else number
            raise OSError(number, os.strerror(number))
        for folder in {Path(path).parent, Path(other).parent}:
            self.sync(str(folder))

    def sync(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError:
            # Some file systems cannot do that for a directory.
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise
        finally:
            os.close(descriptor)


DISK = Disk()


def tighten(place: Path) -> None:
    """Let only the owner read and write `place`; what belongs to somebody else, or to everybody, stays as it is."""
    with suppress(OSError):
        mode = place.stat().st_mode
        if mode & _OTHERS and not mode & stat.S_ISVTX:
            place.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def _end_last_line(path: str, file: BinaryIO) -> None:
    """Take away a last line that is not whole; end one that lacks nothing but its end."""
    size = file.tell()
    with open(path, "rb") as opened:
        opened.seek(max(size - _TAIL_BYTES, 0))
        tail = opened.read()
        if b"\n" not in tail.rstrip(b"\n"):
            opened.seek(0)
            tail = opened.read()
    last = tail.rstrip(b"\n").rpartition(b"\n")[2]
    try:
        json.loads(last.decode())
        if not tail.endswith(b"\n"):
            file.write(b"\n")
    except ValueError:
        file.truncate(size - len(tail) + len(tail.rstrip(b"\n")) - len(last))


@contextmanager
def _draft(file: Path, *, shared: bool, private: bool = False) -> Iterator[tuple[Path, BinaryIO]]:
    """A file next to `file` to write into; gone after the block. Spark does not read a name that begins with a dot."""
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex[:12]}.headrace" if shared else f".{file.name}.headrace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with open(os.open(draft, flags, 0o600 if private else 0o666), "wb") as stream:
            # Who may read the old file may read the new one.
            with suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), file.stat().st_mode & 0o777)
            yield draft, stream
    finally:
        draft.unlink(missing_ok=True)


def _finish(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _entry(name: str, facts: os.stat_result) -> StoreEntry:
    return StoreEntry(
        name=name,
        size_bytes=facts.st_size,
        modified_ms=facts.st_mtime_ns // 1_000_000,
        is_directory=stat.S_ISDIR(facts.st_mode),
    )
