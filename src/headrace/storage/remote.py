"""Paths beyond this machine, with the methods of local ones."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import stat as modes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PosixPath
from typing import IO, Any

from headrace.storage.disk import DISK
from headrace.storage.store import Store, StoreEntry, store_of

# Larger files are fetched in parts of this size, as they are read.
_WHOLE_BYTES, _PART_BYTES = 4 << 20, 1 << 20


class RemotePath(PosixPath):
    """A path such as `hdfs://host:9000/headrace`, for all that Headrace does with the files of its storage.

    Each call asks the store. What only local disks have (links, modes, descriptors) is missing: `open(path)` and the
    functions of `os` raise TypeError instead of looking for such a name on a disk.
    """

    def __str__(self) -> str:
        scheme, *rest = self.parts or ("",)
        # Without a scheme it is a piece of a path, as `relative_to` gives it.
        return f"{scheme}//{'/'.join(rest)}" if _is_scheme(scheme) else "/".join(self.parts) or "."

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is not a path of this machine")

    def as_uri(self) -> str:
        return str(self)

    @property
    def _store(self) -> Store:
        return store_of(self.parts[0].rstrip(":"), self.parts[1], self._inside)

    @property
    def _inside(self) -> str:
        return "/" + "/".join(self.parts[2:])

    def _entry(self) -> StoreEntry | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            return self._store.entry(self._inside)
        return None

    def is_absolute(self) -> bool:
        return bool(self.parts) and _is_scheme(self.parts[0])

    def absolute(self) -> RemotePath:
        return self

    def resolve(self, strict: bool = False) -> RemotePath:
        return self

    def exists(self, **_: Any) -> bool:
        return self._entry() is not None

    def is_dir(self, **_: Any) -> bool:
        entry = self._entry()
        return entry is not None and entry.is_directory

    def is_file(self, **_: Any) -> bool:
        entry = self._entry()
        return entry is not None and not entry.is_directory

    def stat(self, **_: Any) -> os.stat_result:
        entry = self._store.entry(self._inside)
        mode = modes.S_IFDIR | 0o700 if entry.is_directory else modes.S_IFREG | 0o600
        seconds = entry.modified_ms // 1000
        more = {"st_mtime_ns": entry.modified_ms * 1_000_000, "st_mtime": entry.modified_ms / 1000}
        return os.stat_result((mode, 0, 0, 1, 0, 0, entry.size_bytes, seconds, seconds, seconds), more)

    def entries(self) -> list[StoreEntry]:
        """The entries of this directory, by one request. Raises OSError."""
        return list(self._store.listing(self._inside))

    def iterdir(self) -> Iterator[RemotePath]:  # type: ignore[override]
        return iter([self / entry.name for entry in self.entries()])

    def glob(self, pattern: str, **_: Any) -> Iterator[RemotePath]:  # type: ignore[override]
        return iter(sorted(_matching(self, pattern.split("/"))))

    def rglob(self, pattern: str, **_: Any) -> Iterator[RemotePath]:  # type: ignore[override]
        return self.glob(f"**/{pattern}")

    def read_bytes(self) -> bytes:
        return self._store.read(self._inside)

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        text = self.read_bytes().decode(encoding or "utf-8", errors or "strict")
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def write_bytes(self, data: Any) -> int:
        self._store.put(self._inside, bytes(data))
        return len(data)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def open(self, mode: str = "r", *_: Any, encoding: str | None = None, **__: Any) -> IO[Any]:  # type: ignore[override]
        """Open it to read; a file is written whole by `write_bytes`."""
        if mode == "rb":
            begin = self._store.read(self._inside, 0, _WHOLE_BYTES + 1)
            if len(begin) <= _WHOLE_BYTES:
                return io.BytesIO(begin)
            size = self._store.entry(self._inside).size_bytes
            return io.BufferedReader(_Parts(self._store, self._inside, size), _PART_BYTES)
        if mode in ("r", "rt"):
            return io.StringIO(self.read_text(encoding=encoding))
        raise OSError(errno.ENOTSUP, f"it cannot be opened by mode {mode!r}", str(self))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if not exist_ok and self.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self))
        self._store.make_directory(self._inside)

    def chmod(self, mode: int, **_: Any) -> None:
        """Do nothing: the store decides who may read."""

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok:
            self._store.entry(self._inside)
        self._store.delete(self._inside)

    def rmdir(self) -> None:
        if self.entries():
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(self))
        self._store.delete(self._inside)

    def rename(self, target: Any) -> RemotePath:
        """Move it to a free name in the same store. Raises OSError."""
        self._store.move(self._inside, RemotePath(target)._inside)
        return RemotePath(target)


def at(path: Path) -> tuple[Store, str]:
    """The store that `path` lies in, and its name there."""
    return (path._store, path._inside) if isinstance(path, RemotePath) else (DISK, os.fspath(path))


def store_at(path: Path) -> Store:
    """The store that `path` lies in."""
    return at(path)[0]


def lie_together(one: Path, other: Path) -> bool:
    """Whether two paths lie on this machine, or in one store."""
    return _authority(one) == _authority(other)


def _authority(path: Path) -> tuple[str, ...]:
    return path.parts[:2] if isinstance(path, RemotePath) else ()


class _Parts(io.RawIOBase):
    """A large file; only the parts that are read are fetched."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        super().__init__()
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = max(min(len(buffer), self._size - self._at), 0)
        data = self._store.read(self._path, self._at, length) if length else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _is_scheme(text: str) -> bool:
    return len(text) > 1 and text.endswith(":")


def _matching(folder: RemotePath, pattern: list[str]) -> Iterator[RemotePath]:
    """The paths that `Path.glob` would find, by one request for each directory."""
    first, rest = pattern[0], pattern[1:]
    if first != "**" and not any(sign in first for sign in "*?["):
        place = folder / first
        if rest:
            yield from _matching(place, rest)
        elif place.exists():
            yield place
        return
    try:
        entries = folder.entries()
    except (FileNotFoundError, NotADirectoryError):
        return
    if first == "**":
        yield from _matching(folder, rest) if rest else (folder,)
        for entry in entries:
            if entry.is_directory:
                yield from _matching(folder / entry.name, pattern)
        return
    for entry in entries:
        if fnmatch.fnmatchcase(entry.name, first):
            if not rest:
                yield folder / entry.name
            elif entry.is_directory:
                yield from _matching(folder / entry.name, rest)
