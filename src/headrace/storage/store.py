"""What storage must offer, and which of its kinds beyond this machine Headrace knows."""

from __future__ import annotations

import errno
import io
import os
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import BinaryIO, ClassVar

from headrace.errors import HeadraceError, PlatformError, first_line

SCHEMES = ("hdfs", "s3a")


@dataclass(frozen=True, kw_only=True)
class StoreEntry:
    """A file or a directory in a store. etag: an object store's mark of the content of a file."""

    name: str
    size_bytes: int
    modified_ms: int
    is_directory: bool
    etag: str | None = None


class Store(ABC):
    """One file system or bucket, or the disks of this machine. Paths are those within it, absolute in stores, with `/`.

    A file exists whole or not at all, and the next reader sees it. Faults of a path are OSErrors, as on a local disk; a
    store that does not answer, or refuses access, raises PlatformError.
    """

    is_local: ClassVar[bool] = False
    appends: ClassVar[bool] = False
    """Whether lines are added to a file in its place; elsewhere the whole file is put again."""
    has_locks: ClassVar[bool] = False
    is_safe: ClassVar[bool] = True
    """Whether what it took survives a power failure, and is compared with checksums of its own."""

    @abstractmethod
    def entry(self, path: str) -> StoreEntry:
        """The entry of a path. Raises FileNotFoundError."""

    @abstractmethod
    def listing(self, path: str) -> Sequence[StoreEntry]:
        """The entries of a directory, in the order of their names. Raises FileNotFoundError, NotADirectoryError."""

    def names(self, path: str) -> list[str]:
        """The names in a directory. Raises FileNotFoundError, NotADirectoryError."""
        return [entry.name for entry in self.listing(path)]

    def files_below(self, path: str) -> Iterator[str]:
        """Every file below a directory, by its path from there; none where there is no directory."""
        try:
            entries = self.listing(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.is_directory:
                yield from (f"{entry.name}/{name}" for name in self.files_below(f"{path}/{entry.name}"))
            else:
                yield entry.name

    def size_bytes(self, path: str) -> int:
        """The bytes of a file, or of all files below a directory; 0 for a missing path."""
        try:
            inside = self.listing(path)
        except FileNotFoundError:
            return 0
        except NotADirectoryError:
            return self.entry(path).size_bytes
        return sum(self.size_bytes(f"{path}/{one.name}") if one.is_directory else one.size_bytes for one in inside)

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """The content of a file, or a part of it. Raises FileNotFoundError."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Replace a file by `data`, whole: a crash leaves the former content or the new one."""

    def append_lines(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Add lines of JSON to a file, after its last whole line: a crash may have cut off a line.

        sync: the lines, and the name of a new file, are on the disk when this returns.
        """
        try:
            before = self.read(path)
        except FileNotFoundError:
            before = b""
        self.put(path, before + data)

    @contextmanager
    def writing(self, path: str, *, shared: bool = False, private: bool = False) -> Iterator[BinaryIO]:
        """Replace a file by what the block writes, as `put` does, unless the block raises.

        shared: several may do so at once. private: only the owner may read a new file, where others can read at all.
        """
        data = io.BytesIO()
        yield data
        self.put(path, data.getvalue())

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Create a file with `data` and return True; False if it exists. Of several creators at once one succeeds."""

    def copy(self, path: str, new: str) -> None:
        """Copy a file. Raises FileNotFoundError."""
        self.put(new, self.read(path))

    def copy_from(self, other: Store, path: str, new: str) -> None:
        """Copy a file of another store. Raises FileNotFoundError."""
        self.put(new, other.read(path))

    def pieces(self, path: str, length: int) -> Iterator[bytes]:
        """Read a file in pieces of `length` bytes. Raises FileNotFoundError."""
        for start in range(0, self.entry(path).size_bytes, length):
            yield self.read(path, start, length)

    def link(self, path: str, new: str) -> None:
        """Give a file a second name that is free, or copy it there. Raises OSError."""
        self.copy(path, new)

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content; a missing path is not a fault."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, where the store has directories."""

    def make_private(self, path: str) -> None:
        """Make a directory that its owner alone may read, with those above it, where a store has such."""
        self.make_directory(path)

    @contextmanager
    def scratch(self, path: str) -> Iterator[str]:
        """A new private directory in one, gone after the block."""
        place = f"{path}/headrace-{uuid.uuid4().hex[:12]}"
        self.make_directory(place)
        try:
            yield place
        finally:
            with suppress(OSError, HeadraceError):
                self.delete(place)

    @abstractmethod
    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        """Give a file or a directory a new name that is free. Raises OSError.

        In one step where the store has such a step. Elsewhere the old name is whole until the new one is. last: files
        of a directory that are copied last, so that they say that the new one is whole.
        """

    def publish(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        """Move a path once everything in it is on the disk. Raises OSError."""
        self.move(path, new, last)

    def exchange(self, path: str, other: str) -> None:
        """Exchange two names in one step. Raises OSError, with ENOTSUP where the store has no such step."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def sync(self, path: str) -> None:  # noqa: B027
        """Flush a file, or the names in a directory, to the disk. Raises OSError."""

    def require_conditional(self, folder: str) -> None:  # noqa: B027
        """Raise PlatformError if the store does not keep what `create` promises, for files in `folder`."""


_stores: dict[str, Store] = {}
# For each thread, the stores that answer for a directory: the key of its own store, the directory, the other store.
_in_place: ContextVar[tuple[tuple[str, str, Store], ...]] = ContextVar("in_place", default=())
_guard = threading.Lock()


def keep(scheme: str, authority: str, create: Callable[[], Store]) -> None:
    """Register a store for `store_of`, unless it is registered; `create` makes it."""
    with _guard:
        if _key(scheme, authority) not in _stores:
            _stores[_key(scheme, authority)] = create()


def store_of(scheme: str, authority: str, path: str) -> Store:
    """The registered store, or the one that answers for `path` in its place."""
    key = _key(scheme, authority)
    for whose, folder, other in _in_place.get():
        if whose == key and path.startswith(f"{folder}/"):
            return other
    with _guard:
        return _stores[key]


@contextmanager
def in_place(scheme: str, authority: str, folder: str, create: Callable[[Store], Store]) -> Iterator[None]:
    """Make another store answer this thread for paths below `folder` in the block, unless one does already."""
    key, before = _key(scheme, authority), _in_place.get()
    if any(place[:2] == (key, folder) for place in before):
        yield
        return
    with _guard:
        mine = create(_stores[key])
    token = _in_place.set((*before, (key, folder, mine)))
    try:
        yield
    finally:
        _in_place.reset(token)


def forget(scheme: str, authority: str) -> None:
    """Remove a store, so that it is created again at its next use."""
    with _guard:
        _stores.pop(_key(scheme, authority), None)


class StoreNotAsked(PlatformError):
    """The store does not answer, or not to this user, or not without a package; Spark itself may still reach it."""


def silent(url: str, why: str) -> HeadraceError:
    """The error for a store that does not answer."""
    return StoreNotAsked(
        code="HR831",
        what=f"the storage {url} cannot be reached: {why}",
        fix="look whether the store runs and the address is right; what was committed is safe, and the next start "
        "resumes from there",
    )


def refusal(url: str, why: str) -> HeadraceError:
    """The error for a store that refuses this user."""
    return StoreNotAsked(
        code="HR833",
        what=f"the storage {url} refuses access: {why}",
        fix="give the user that runs Headrace the right to read and write there, or renew its credentials",
    )


def reason_of(error: BaseException) -> str:
    """Why a store does not answer: the system's error inside the client's, or the first line."""
    if "Timeout" in type(error).__name__:
        return "it does not answer in time"
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno and inner.strerror:
            return os.strerror(inner.errno) if inner.errno > 0 else inner.strerror
        # Of urllib3 and of botocore.
        nested = getattr(inner, "reason", None) or getattr(inner, "kwargs", {}).get("error")
        inner = nested if isinstance(nested, BaseException) else inner.__cause__ or inner.__context__
    return first_line(error) or type(error).__name__


def _key(scheme: str, authority: str) -> str:
    return f"{scheme}://{authority}"
