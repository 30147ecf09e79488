"""A store in memory that obeys the contract, for tests that need no server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count
from typing import Any

from headrace.storage import store
from headrace.storage.remote import RemotePath
from headrace.storage.s3 import S3
from headrace.storage.store import Store, StoreEntry
from services import S3Server

_numbers = count()
_STEPS = ("put_object", "copy_object", "delete_object", "delete_objects")


class MemoryStore(Store):
    """Files by their paths; directories are there as soon as something is in them, or they were made."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}
        self.directories = {"/"}
        self.now_ms = 1_700_000_000_000
        self.lock = threading.RLock()

    def entry(self, path: str) -> StoreEntry:
        with self.lock:
            name = path.rpartition("/")[2]
            if path in self.directories:
                return StoreEntry(name=name, size_bytes=0, modified_ms=self.now_ms, is_directory=True)
            if path not in self.files:
                raise FileNotFoundError(path)
            data, modified = self.files[path]
            return StoreEntry(name=name, size_bytes=len(data), modified_ms=modified, is_directory=False)

    def listing(self, path: str) -> Sequence[StoreEntry]:
        with self.lock:
            if not self.entry(path).is_directory:
                raise NotADirectoryError(path)
            inside = [name for name in (*self.files, *self.directories) if name.rpartition("/")[0] == path.rstrip("/")]
            return [self.entry(name) for name in sorted(inside) if name != "/"]

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
            for file in [file for file in self.files if file == path or file.startswith(f"{path}/")]:
                del self.files[file]
            self.directories -= {
                folder for folder in self.directories if folder == path or folder.startswith(f"{path}/")
            }

    def make_directory(self, path: str) -> None:
        while path and path not in self.directories:
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        with self.lock:
            self.entry(path)
            if new in self.files or new in self.directories:
                raise FileExistsError(new)
            moved = {file: data for file, data in self.files.items() if file == path or file.startswith(f"{path}/")}
            folders = [folder for folder in self.directories if folder == path or folder.startswith(f"{path}/")]
            self.delete(path)
            for folder in folders:
                self.make_directory(new + folder.removeprefix(path))
            self.files |= {new + file.removeprefix(path): data for file, data in moved.items()}


class MemoryBucket(S3):
    """The bucket of Headrace, whose requests are answered from memory. `asked` gets each request and may raise."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.objects: dict[str, tuple[bytes, dict[str, str], datetime]] = {}
        self.lock = threading.RLock()
        self.asked: Callable[[str], None] = lambda verb: None

    def steps_of(self, do: Callable[[], object]) -> list[str]:
        """The requests of `do` that write."""
        steps = list[str]()
        self.asked = lambda verb: steps.append(verb) if verb in _STEPS else None
        try:
            do()
        finally:
            self.asked = lambda verb: None
        return steps

    @contextmanager
    def dying(self, at: int, killed: type[BaseException]) -> Iterator[None]:
        """Let the process die in the block, before the request of this number that writes."""
        left = iter(range(at + 1))

        def asked(verb: str) -> None:
            if verb in _STEPS and next(left, None) == at:
                raise killed(f"request {at}")

        self.asked = asked
        try:
            yield
        finally:
            self.asked = lambda verb: None

    def _ask(self, verb: str, **options: Any) -> Any:
        self.asked(verb)
        with self.lock:
            return getattr(self, f"_{verb}")(**options)

    def _head_object(self, Key: str) -> dict[str, Any]:  # noqa: N803
        data, metadata, modified = self._object_of(Key)
        return {"ContentLength": len(data), "LastModified": modified, "Metadata": metadata}

    def _get_object(self, Key: str, Range: str = "bytes=0-") -> bytes:  # noqa: N803
        first, _, last = Range.removeprefix("bytes=").partition("-")
        return self._object_of(Key)[0][int(first) : int(last) + 1 if last else None]

    def _put_object(self, Key: str, Body: bytes, IfNoneMatch: str = "", Metadata: Any = None) -> None:  # noqa: N803
        if IfNoneMatch and Key in self.objects:
            raise FileExistsError(Key)
        self.objects[Key] = (Body, Metadata or {}, datetime.now(timezone.utc))

    def _copy_object(self, Key: str, CopySource: dict[str, str]) -> None:  # noqa: N803
        self._put_object(Key, *self._object_of(CopySource["Key"])[:1])

    def _delete_object(self, Key: str) -> None:  # noqa: N803
        self.objects.pop(Key, None)

    def _delete_objects(self, Delete: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
        for entry in Delete["Objects"]:
            self._delete_object(entry["Key"])
        return {}

    def _list_objects_v2(self, Prefix: str, Delimiter: str = "", MaxKeys: int = 0) -> dict[str, Any]:  # noqa: N803
        keys = sorted(key for key in self.objects if key.startswith(Prefix))
        below = {key: key.removeprefix(Prefix).partition("/") for key in keys} if Delimiter else {}
        folders = sorted({f"{Prefix}{name}/" for name, slash, _ in below.values() if slash})
        files = [key for key in keys if not below.get(key, ("", "", ""))[1]]
        return {
            "KeyCount": len(keys),
            "Contents": [
                {"Key": key, "Size": len(self.objects[key][0]), "LastModified": self.objects[key][2]} for key in files
            ],
            "CommonPrefixes": [{"Prefix": folder} for folder in folders],
        }

    def _object_of(self, key: str) -> tuple[bytes, dict[str, str], datetime]:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]


@contextmanager
def memory_store(name: str) -> Iterator[tuple[MemoryStore, RemotePath]]:
    """A store that paths of `hdfs://name` lead to, and its root."""
    made = MemoryStore()
    with _store_of("hdfs", name, made) as root:
        yield made, root


@contextmanager
def memory_bucket(name: str) -> Iterator[tuple[MemoryBucket, RemotePath]]:
    """A bucket that paths of `s3a://name` lead to, and its root."""
    made = MemoryBucket(name)
    with _store_of("s3a", name, made) as root:
        yield made, root


@contextmanager
def _store_of(scheme: str, name: str, made: Store) -> Iterator[RemotePath]:
    store.forget(scheme, name)
    store.keep(scheme, name, lambda: made)
    try:
        yield RemotePath(f"{scheme}://{name}")
    finally:
        store.forget(scheme, name)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A new bucket, and how Spark and Headrace reach it."""

    name: str
    server: S3Server

    @property
    def place(self) -> dict[str, Any]:
        """What a project in it declares."""
        return {"storage": f"s3a://{self.name}/shop", "spark": self.settings()}

    def settings(self, name: str | None = None, **other: str) -> dict[str, str]:
        """Hadoop's settings for this bucket alone, or for one of another `name`; `other` by their last words."""
        key, secret = self.server.credentials
        common = {"endpoint": self.server.url(), "path.style.access": "true", "endpoint.region": "us-east-1"}
        every = {**common, "access.key": key, "secret.key": secret, **other}
        return {f"spark.hadoop.fs.s3a.bucket.{name or self.name}.{option}": value for option, value in every.items()}


def new_bucket(server: S3Server) -> Bucket:
    """An empty bucket of `server`."""
    return Bucket(name=server.create_bucket(f"bucket-{next(_numbers)}"), server=server)
