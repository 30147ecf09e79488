"""What a store has answered a thread about one directory.

A start looks at each file of a checkpoint several times. Of a local disk that costs nothing; a store is asked once for
each directory, and for its small files side by side.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.storage.remote import at
from headrace.storage.store import Store, StoreEntry, in_place

# Larger files are read in parts, or once.
_SMALL_BYTES = 64 << 10
# From so many files of a directory on, the others are wanted as well.
_WANTED, _AT_ONCE, _MOST = 3, 8, 300


@contextmanager
def remembering(folder: Path) -> Iterator[None]:
    """Ask for nothing below `folder` twice in this thread: what others write there meanwhile may not be seen."""
    store, inside = at(folder)
    if store.is_local:
        yield
        return
    scheme, authority = folder.parts[:2]
    with in_place(scheme.rstrip(":"), authority, inside, lambda store: Remembered(store, inside)):
        yield


class Remembered(Store):
    """A store, of which the answers about one directory are kept."""

    def __init__(self, store: Store, folder: str) -> None:
        self._asked = store
        self._folder = folder
        self._listings: dict[str, Sequence[StoreEntry] | OSError] = {}
        self._contents: dict[str, bytes] = {}
        self._reads: Counter[str] = Counter()
        self._guard = threading.RLock()

    def entry(self, path: str) -> StoreEntry:
        if not self._is_inside(path):
            return self._asked.entry(path)
        parent, _, name = path.rpartition("/")
        with suppress(OSError):
            for entry in self.listing(parent):
                if entry.name == name:
                    return entry
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def listing(self, path: str) -> Sequence[StoreEntry]:
        if path != self._folder and not self._is_inside(path):
            return self._asked.listing(path)
        with self._guard:
            if path not in self._listings:
                try:
                    self._listings[path] = self._asked.listing(path)
                except (FileNotFoundError, NotADirectoryError) as error:
                    self._listings[path] = error
            answer = self._listings[path]
        if isinstance(answer, OSError):
            raise type(answer)(*answer.args)
        return answer

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if not self._is_inside(path) or self.entry(path).size_bytes > _SMALL_BYTES:
            return self._asked.read(path, start, length)
        with self._guard:
            if path not in self._contents:
                self._fetch(path)
            content = self._contents[path]
        return content[start : None if length is None else start + length]

    def put(self, path: str, data: bytes) -> None:
        self._asked.put(path, data)
        self._forget(path)

    def create(self, path: str, data: bytes) -> bool:
        made = self._asked.create(path, data)
        self._forget(path)
        return made

    def copy(self, path: str, new: str) -> None:
        self._asked.copy(path, new)
        self._forget(new)

    def copy_from(self, other: Store, path: str, new: str) -> None:
        self._asked.copy_from(other, path, new)
        self._forget(new)

    def delete(self, path: str) -> None:
        self._asked.delete(path)
        self._forget()

    def make_directory(self, path: str) -> None:
        self._asked.make_directory(path)
        self._forget(path)

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        self._asked.move(path, new, last)
        self._forget()

    def require_conditional(self, folder: str) -> None:
        self._asked.require_conditional(folder)

    def _is_inside(self, path: str) -> bool:
        return path.startswith(f"{self._folder}/")

    def _fetch(self, path: str) -> None:
        """Read a file; with the third file of a directory, read all its small files."""
        folder = path.rpartition("/")[0]
        self._reads[folder] += 1
        if self._reads[folder] < _WANTED:
            self._contents[path] = self._asked.read(path)
            return
        entries = [entry for entry in self.listing(folder) if not entry.is_directory]
        small = [entry for entry in entries if entry.size_bytes <= _SMALL_BYTES]
        paths = dict.fromkeys((path, *(f"{folder}/{entry.name}" for entry in small[-_MOST:])))
        wanted = [file for file in paths if file not in self._contents]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            self._contents.update(zip(wanted, pool.map(self._asked.read, wanted), strict=True))

    def _forget(self, path: str | None = None) -> None:
        """Forget a path that was written and the directories that it is in; or everything."""
        with self._guard:
            if path is None:
                self._listings.clear()
                self._contents.clear()
                return
            self._contents.pop(path, None)
            while path:
                self._listings.pop(path, None)
                path = path.rpartition("/")[0]
