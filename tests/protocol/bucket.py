"""Stores in memory: a bucket of objects, asked by the product's own S3, and a file system with a rename in one step.

Each question is a step, and its answer may be lost.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any, ClassVar

from headrace.storage.s3 import S3
from headrace.storage.store import Store, StoreEntry, silent

from .scheduler import Scheduler

_CHANGES = ("put_object", "delete_object", "copy_object")


class Moment(float):
    """A moment of the model's clock, as a datetime is asked for it."""

    def timestamp(self) -> float:
        return float(self)


class Object:
    """What is kept under one key; `facts`: as a listing gives them."""

    def __init__(self, key: str, data: bytes, at: float, metadata: dict[str, str]) -> None:
        self.data, self.at, self.metadata = data, at, metadata
        self.facts: dict[str, Any] = {"Key": key, "Size": len(data), "LastModified": Moment(at)}


class Bucket(S3):
    """lost: how often the answer to a question that changes something is lost, and the client asks again."""

    scheme: ClassVar[str] = "s3a"

    def __init__(self, name: str, scheduler: Scheduler, *, lost: float = 0.0) -> None:
        self.bucket, self.url = name, f"s3a://{name}"
        self._keeps_first = True
        self.scheduler, self.lost = scheduler, lost
        self.objects: dict[str, Object] = {}

    @property
    def _at(self) -> str:
        return self.url

    def _ask(self, verb: str, **options: Any) -> Any:
        scheduler = self.scheduler
        scheduler.step(f"{self.bucket} {verb} {options.get('Key') or options.get('Prefix')}")
        answer = getattr(self, f"_{verb}")(**options)
        if self.lost and verb in _CHANGES and scheduler.current is not None and scheduler.random.random() < self.lost:
            scheduler.step(f"{self.bucket} {verb}, its answer lost")
            if scheduler.random.random() < 0.2:
                raise silent(self.url, "it does not answer in time")
            # What botocore does by itself.
            answer = getattr(self, f"_{verb}")(**options)
        return answer

    def _found(self, key: str) -> Object:
        if key not in self.objects:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}/{key}")
        return self.objects[key]

    def _head_object(self, Key: str) -> dict[str, Any]:  # noqa: N803
        found = self._found(Key)
        return {**found.facts, "Metadata": found.metadata}

    def _get_object(self, Key: str, Range: str = "") -> bytes:  # noqa: N803
        data = self._found(Key).data
        if not Range:
            return data
        first, _, last = Range.removeprefix("bytes=").partition("-")
        return data[int(first) : int(last) + 1 if last else None]

    def _put_object(
        self,
        Key: str,  # noqa: N803
        Body: bytes,  # noqa: N803
        IfNoneMatch: str = "",  # noqa: N803
        Metadata: dict[str, str] | None = None,  # noqa: N803
    ) -> dict[str, Any]:
        if IfNoneMatch and Key in self.objects:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{self.url}/{Key}")
        self.objects[Key] = Object(Key, Body, self.scheduler.now, Metadata or {})
        return {}

    def _copy_object(self, Key: str, CopySource: dict[str, str]) -> dict[str, Any]:  # noqa: N803
        found = self._found(CopySource["Key"])
        self.objects[Key] = Object(Key, found.data, self.scheduler.now, found.metadata)
        return {}

    def _delete_object(self, Key: str) -> dict[str, Any]:  # noqa: N803
        self.objects.pop(Key, None)
        return {}

    def _delete_objects(self, Delete: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
        for one in Delete["Objects"]:
            self.objects.pop(one["Key"], None)
        return {}

    def _list_objects_v2(self, Prefix: str = "", Delimiter: str = "", MaxKeys: int = 0) -> dict[str, Any]:  # noqa: N803
        objects = self.objects
        keys = sorted([key for key in objects if key.startswith(Prefix)])
        if not Delimiter:
            return {"Contents": [objects[key].facts for key in keys], "KeyCount": len(keys)}
        contents, folders, begins = [], dict[str, None](), len(Prefix)
        for key in keys:
            ends = key.find(Delimiter, begins)
            if ends < 0:
                contents.append(objects[key].facts)
            else:
                folders[key[: ends + 1]] = None
        return {
            "Contents": contents,
            "CommonPrefixes": [{"Prefix": folder} for folder in folders],
            "KeyCount": len(contents) + len(folders),
        }


class FileSystem(Store):
    """One as HDFS is: a file is created by one, and a directory is moved in one step."""

    scheme: ClassVar[str] = "hdfs"

    def __init__(self, name: str, scheduler: Scheduler, *, lost: float = 0.0) -> None:
        self.bucket, self.scheduler, self.lost = name, scheduler, lost
        self.objects: dict[str, Object] = {}

    def _step(self, verb: str, path: str) -> str:
        self.scheduler.step(f"{self.bucket} {verb} {path}")
        return path.strip("/")

    def _answer(self) -> None:
        """What was changed is told, unless the answer is lost."""
        scheduler = self.scheduler
        if self.lost and scheduler.current is not None and scheduler.random.random() < 0.2 * self.lost:
            scheduler.step("the answer is lost")
            raise silent(f"hdfs://{self.bucket}", "it does not answer in time")

    def _is_directory(self, key: str) -> bool:
        prefix = f"{key}/"
        return prefix in self.objects or any(name.startswith(prefix) for name in self.objects)

    def entry(self, path: str) -> StoreEntry:
        key = self._step("look at", path)
        name = key.rpartition("/")[2]
        if (found := self.objects.get(key)) is not None:
            return _stored(name, found)
        if self._is_directory(key):
            return StoreEntry(name=name, size_bytes=0, modified_ms=0, is_directory=True)
        raise _missing(path)

    def listing(self, path: str) -> Sequence[StoreEntry]:
        key = self._step("list", path)
        if key in self.objects:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        prefix = f"{key}/"
        found: dict[str, StoreEntry] = {}
        is_there = False
        for name in sorted([name for name in self.objects if name.startswith(prefix)]):
            is_there = True
            first, slash, _ = name[len(prefix) :].partition("/")
            if slash:
                found[first] = StoreEntry(name=first, size_bytes=0, modified_ms=0, is_directory=True)
            elif first:
                found[first] = _stored(first, self.objects[name])
        if not is_there:
            raise _missing(path)
        return [found[name] for name in sorted(found)]

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        key = self._step("read", path)
        if key not in self.objects:
            raise _missing(path)
        return self.objects[key].data[start : None if length is None else start + length]

    def put(self, path: str, data: bytes) -> None:
        self._keep(self._step("put", path), data)
        self._answer()

    def create(self, path: str, data: bytes) -> bool:
        key = self._step("create", path)
        if key in self.objects:
            return False
        self._keep(key, data)
        self._answer()
        return True

    def delete(self, path: str) -> None:
        key = self._step("delete", path)
        for name in [name for name in self.objects if name == key or name.startswith(f"{key}/")]:
            del self.objects[name]
        self._answer()

    def make_directory(self, path: str) -> None:
        self._keep(self._step("make", path) + "/", b"")

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        key, target = self._step("move", path), new.strip("/")
        if target in self.objects or self._is_directory(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        moved = [name for name in self.objects if name == key or name.startswith(f"{key}/")]
        if not moved:
            raise _missing(path)
        for name in moved:
            found = self.objects.pop(name)
            self._keep(target + name[len(key) :], found.data)
        self._answer()

    def _keep(self, key: str, data: bytes) -> None:
        self.objects[key] = Object(key, data, self.scheduler.now, {})


def copied(original: Bucket | FileSystem, name: str) -> Bucket | FileSystem:
    """A copy, as of a backup, under another name."""
    copy = type(original)(name, original.scheduler, lost=original.lost)
    copy.objects = dict(original.objects)
    return copy


def _stored(name: str, found: Object) -> StoreEntry:
    return StoreEntry(name=name, size_bytes=len(found.data), modified_ms=int(found.at * 1000), is_directory=False)


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
