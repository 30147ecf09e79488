"""A store in memory that obeys the contract, for tests that need no server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from headrace.storage import store
from headrace.storage.remote import RemotePath
from headrace.storage.store import Entry, Store
from services import S3Server

_numbers = count()


class MemoryStore(Store):
    """Files by their paths; directories are there as soon as something is in them, or they were made."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}
        self.directories = {"/"}
        self.now_ms = 1_700_000_000_000
        self.lock = threading.RLock()

    def entry(self, path: str) -> Entry:
        with self.lock:
            name = path.rpartition("/")[2]
            if path in self.directories:
                return Entry(name=name, size_bytes=0, modified_ms=self.now_ms, is_directory=True)
            if path not in self.files:
                raise FileNotFoundError(path)
            data, modified = self.files[path]
            return Entry(name=name, size_bytes=len(data), modified_ms=modified, is_directory=False)

    def listing(self, path: str) -> Sequence[Entry]:
        with self.lock:
            if not self.entry(path).is_directory:
                raise NotADirectoryError(path)
            inside = [each for each in (*self.files, *self.directories) if each.rpartition("/")[0] == path.rstrip("/")]
            return [self.entry(each) for each in sorted(inside) if each != "/"]

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with self.lock:
            if path not in self.files:
                raise FileNotFoundError(path)
            return self.files[path][0][start : None if length is None else start + length]

    def put(self, path: str, data: bytes) -> None:
        with self.lock:
            self.make_directory(path.rpartition("/")[0] or "/")
            self.files[path] = (data, self.now_ms)

    def create(self, path: str, data: bytes) -> bool:
        with self.lock:
            if path in self.files:
                return False
            self.put(path, data)
            return True

    def delete(self, path: str) -> None:
        with self.lock:
            for each in [each for each in self.files if each == path or each.startswith(f"{path}/")]:
                del self.files[each]
            self.directories -= {each for each in self.directories if each == path or each.startswith(f"{path}/")}

    def make_directory(self, path: str) -> None:
        while path and path not in self.directories:
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        with self.lock:
            self.entry(path)
            if new in self.files or new in self.directories:
                raise FileExistsError(new)
            moved = {each: data for each, data in self.files.items() if each == path or each.startswith(f"{path}/")}
            folders = [each for each in self.directories if each == path or each.startswith(f"{path}/")]
            self.delete(path)
            for each in folders:
                self.make_directory(new + each.removeprefix(path))
            self.files |= {new + each.removeprefix(path): data for each, data in moved.items()}


@contextmanager
def memory_store(name: str) -> Iterator[tuple[MemoryStore, RemotePath]]:
    """A store that paths of `hdfs://name` lead to, and its root."""
    made = MemoryStore()
    store.forget("hdfs", name)
    store.keep("hdfs", name, lambda: made)
    try:
        yield made, RemotePath(f"hdfs://{name}")
    finally:
        store.forget("hdfs", name)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A new bucket, and how Spark and Headrace reach it."""

    name: str
    server: S3Server

    def settings(self, name: str | None = None, **other: str) -> dict[str, str]:
        """Hadoop's settings for this bucket alone, or for one of another `name`; `other` by their last words."""
        key, secret = self.server.credentials
        known = {"endpoint": self.server.url(), "path.style.access": "true", "endpoint.region": "us-east-1"}
        every = {**known, "access.key": key, "secret.key": secret, **other}
        return {f"spark.hadoop.fs.s3a.bucket.{name or self.name}.{each}": value for each, value in every.items()}


def new_bucket(server: S3Server) -> Bucket:
    """An empty bucket of `server`."""
    return Bucket(name=server.create_bucket(f"bucket-{next(_numbers)}"), server=server)
