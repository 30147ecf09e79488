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
    """A file or a directory in a store. etag: what an object store has for the content of a file."""

    name: str
    size_bytes: int
    modified_ms: int
    is_directory: bool
    etag: str | None = None


class Store(ABC):
    """One file system or bucket, or the disks of this machine. Paths are those within it, absolute in stores, with `/`.

    A file is there as a whole or not at all, and whoever asks next sees it. Faults of a path are OSErrors, as those of
    a local one; a store that does not answer, or does not let us in, raises PlatformError.
    """

    is_local: ClassVar[bool] = False
    appends: ClassVar[bool] = False
    """Whether a file is added to in its place; elsewhere it is put anew as a whole."""
    has_locks: ClassVar[bool] = False
    is_safe: ClassVar[bool] = True
    """Whether what it has taken outlives a machine's power, and is held against checksums of its own."""

    @abstractmethod
    def entry(self, path: str) -> StoreEntry:
        """What lies there. Raises FileNotFoundError."""

    @abstractmethod
    def listing(self, path: str) -> Sequence[StoreEntry]:
        """What lies in a directory, in order of the names. Raises FileNotFoundError, NotADirectoryError."""

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
        """The bytes of a file, or of all files below a directory; none where nothing is."""
        try:
            inside = self.listing(path)
        except FileNotFoundError:
            return 0
        except NotADirectoryError:
            return self.entry(path).size_bytes
        return sum(self.size_bytes(f"{path}/{one.name}") if one.is_directory else one.size_bytes for one in inside)

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """What a file holds, or a part of it. Raises FileNotFoundError."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Let a file hold `data`, or what it held before; never a part of either."""

    def append_lines(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Add whole lines of JSON to a file, behind its last whole one: a crash may have cut off what follows that.

        sync: they are on the disk when this returns, and the name of a new file as well.
        """
        try:
            before = self.read(path)
        except FileNotFoundError:
            before = b""
        self.put(path, before + data)

    @contextmanager
    def writing(self, path: str, *, shared: bool = False, private: bool = False) -> Iterator[BinaryIO]:
        """Let a file hold what the block writes, as `put` does, unless it raises.

        shared: several may do so at once. private: only the owner may read a new file, where others can read at all.
        """
        data = io.BytesIO()
        yield data
        self.put(path, data.getvalue())

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Let a file hold `data` if it is not there; of several that create it at once, one does."""

    def copy(self, path: str, new: str) -> None:
        """Let a file hold what another one holds. Raises FileNotFoundError."""
        self.put(new, self.read(path))

    def copy_from(self, other: Store, path: str, new: str) -> None:
        """Let a file hold what one of another store holds. Raises FileNotFoundError."""
        self.put(new, other.read(path))

    def pieces(self, path: str, length: int) -> Iterator[bytes]:
        """Read a file in pieces of `length` bytes. Raises FileNotFoundError."""
        for start in range(0, self.entry(path).size_bytes, length):
            yield self.read(path, start, length)

    def link(self, path: str, new: str) -> None:
        """Let a free name be one more of the same file, or a copy of it. Raises OSError."""
        self.copy(path, new)

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; what is gone already is no fault."""

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

        In one step where the store has such a step. Elsewhere the old is whole until the new is, the same call and
        `end_move` end what was cut off, and of a directory these files of its own are the last to come and to go.
        """

    def publish(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        """Move what is whole once everything in it is on the disk. Raises OSError."""
        self.move(path, new, last)

    def exchange(self, path: str, other: str) -> None:
        """Let each of two names be that of the other, in one step. Raises OSError, with ENOTSUP without such a step."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def sync(self, path: str) -> None:  # noqa: B027
        """Bring to the disk what was written into a file, or the names in a directory. Raises OSError."""

    def end_move(self, new: str) -> None:  # noqa: B027
        """End the move of a directory to this name, if one was begun and cut off. Raises OSError."""

    def require_conditional(self, folder: str) -> None:  # noqa: B027
        """Raise PlatformError if the store does not keep what `create` promises, for files in `folder`."""


_stores: dict[str, Store] = {}
# Of each thread, what answers for a directory in place of its store: the store's key, the directory, the other store.
_in_place: ContextVar[tuple[tuple[str, str, Store], ...]] = ContextVar("in_place", default=())
_guard = threading.Lock()


def keep(scheme: str, authority: str, made: Callable[[], Store]) -> None:
    """Let a store be found by `store_of`; it is made when it is first asked for."""
    with _guard:
        if _key(scheme, authority) not in _stores:
            _stores[_key(scheme, authority)] = made()


def store_of(scheme: str, authority: str, path: str) -> Store:
    """The store that was kept, or that which answers for `path` in its place."""
    key = _key(scheme, authority)
    for whose, folder, other in _in_place.get():
        if whose == key and path.startswith(f"{folder}/"):
            return other
    with _guard:
        return _stores[key]


@contextmanager
def in_place(scheme: str, authority: str, folder: str, made: Callable[[Store], Store]) -> Iterator[None]:
    """Let another store answer this thread for what is below `folder` in the block, unless one does already."""
    key, before = _key(scheme, authority), _in_place.get()
    if any(each[:2] == (key, folder) for each in before):
        yield
        return
    with _guard:
        mine = made(_stores[key])
    token = _in_place.set((*before, (key, folder, mine)))
    try:
        yield
    finally:
        _in_place.reset(token)


def forget(scheme: str, authority: str) -> None:
    """Let a store be made anew at its next use."""
    with _guard:
        _stores.pop(_key(scheme, authority), None)


class StoreNotAsked(PlatformError):
    """The store does not answer, or not to this user, or not without a package; Spark itself may still reach it."""


def silent(url: str, why: str) -> HeadraceError:
    """The fault of a store that does not answer."""
    return StoreNotAsked(
        code="HR831",
        what=f"the storage {url} cannot be reached: {why}",
        fix="look whether the store runs and the address is right; what was committed is safe, and the next start "
        "resumes from there",
    )


def refused(url: str, why: str) -> HeadraceError:
    """The fault of a store that does not let this user do something."""
    return StoreNotAsked(
        code="HR833",
        what=f"the storage {url} refuses access: {why}",
        fix="give the user that runs Headrace the right to read and write there, or renew its credentials",
    )


def reason_of(error: BaseException) -> str:
    """Why a store does not answer: the fault of the system that lies in the client's error, or its first line."""
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
