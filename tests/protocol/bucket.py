"""Stores in memory: a bucket of objects, asked by the product's own S3, and a file system with a rename in one step.

Each question is a step, and its answer may be lost.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import Any, ClassVar

from headrace.model import project
from headrace.storage import store
from headrace.storage.remote import RemotePath
from headrace.storage.s3 import S3
from headrace.storage.store import Store, StoreEntry, silent

from .scheduler import Scheduler

_CHANGES = frozenset(("put_object", "delete_object", "delete_objects", "copy_object"))


class Moment(float):
    """A moment of the model's clock, as a datetime is asked for it."""

    def timestamp(self) -> float:
        return float(self)


class Object:
    """What is kept under one key; `facts`: as a listing gives them."""

    def __init__(self, key: str, data: bytes, at: float, metadata: dict[str, str]) -> None:
        self.data, self.at, self.metadata = data, at, metadata
        self.facts: dict[str, Any] = {"Key": key, "Size": len(data), "LastModified": Moment(at)}


class Objects(dict[str, Object]):
    """What a store holds, by its keys; these are kept in order."""

    def __init__(self, objects: Mapping[str, Object] | None = None) -> None:
        super().__init__(objects or {})
        self.order = sorted(self)

    def __setitem__(self, key: str, value: Object) -> None:
        if key not in self:
            insort(self.order, key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        del self.order[bisect_left(self.order, key)]

    def take(self, key: str) -> Object | None:
        """Remove what a key holds, if there is such."""
        item = self.get(key)
        if item is not None:
            del self[key]
        return item

    def below(self, prefix: str) -> list[str]:
        """The keys that begin so, in order."""
        first = bisect_left(self.order, prefix)
        return self.order[first : bisect_left(self.order, prefix + _LAST, first)]

    def inside(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """The keys that begin so and have no `/` behind that, and of the others the part up to it: True."""
        order, at, begins = self.order, bisect_left(self.order, prefix), len(prefix)
        while at < len(order) and order[at].startswith(prefix):
            ends = order[at].find("/", begins)
            if ends < 0:
                yield order[at], False
                at += 1
            else:
                yield order[at][: ends + 1], True
                at = bisect_left(order, order[at][:ends] + _AFTER_SLASH, at)


# Behind all that follows a prefix; the sign after `/`.
_LAST, _AFTER_SLASH = chr(0x10FFFF), chr(ord("/") + 1)


class Bucket(S3):
    """lost: how often the answer to a question that changes something is lost, and the client asks again.

    fails: the next question that changes a key with this in its name does not come through.
    """

    scheme: ClassVar[str] = "s3a"

    def __init__(self, name: str, scheduler: Scheduler, *, lost: float = 0.0) -> None:
        self.bucket, self.url = name, f"s3a://{name}"
        self._keeps_first = True
        self.scheduler, self.lost, self.fails = scheduler, lost, ""
        self.objects = Objects()

    @property
    def _at(self) -> str:
        return self.url

    def _ask(self, verb: str, **options: Any) -> Any:
        scheduler = self.scheduler
        changes = verb in _CHANGES
        scheduler.step(f"{self.bucket} {verb} {options.get('Key') or options.get('Prefix')}", changes=changes)
        if changes and self.fails and self.fails in options.get("Key", ""):
            self.fails = ""
            raise silent(self.url, "the question has not come through")
        is_lost = self.lost and changes and scheduler.current is not None and scheduler.random.random() < self.lost
        if is_lost and scheduler.random.random() < 0.1:
            raise silent(self.url, "the question has not come through")
        answer = getattr(self, f"_{verb}")(**options)
        if is_lost:
            scheduler.step(f"{self.bucket} {verb}, its answer lost")
            if scheduler.random.random() < 0.2:
                raise silent(self.url, "it does not answer in time")
            # What botocore does by itself.
            answer = getattr(self, f"_{verb}")(**options)
        if changes:
            scheduler.stop_if_due()
        return answer

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        """A process that is to be stopped in a move is stopped after a request, and not between a look and its request.

        Against that there is no way: the request comes, whatever others have done since.
        """
        if self.scheduler.current is None:
            return super().move(path, new, last)
        process = self.scheduler.process
        process.looks += 1
        try:
            super().move(path, new, last)
        finally:
            process.looks -= 1

    def _object_of(self, key: str) -> Object:
        if key not in self.objects:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}/{key}")
        return self.objects[key]

    def _head_object(self, Key: str) -> dict[str, Any]:  # noqa: N803
        item = self._object_of(Key)
        return {**item.facts, "Metadata": item.metadata}

    def _get_object(self, Key: str, Range: str = "") -> bytes:  # noqa: N803
        data = self._object_of(Key).data
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
        item = self._object_of(CopySource["Key"])
        self.objects[Key] = Object(Key, item.data, self.scheduler.now, item.metadata)
        return {}

    def _delete_object(self, Key: str) -> dict[str, Any]:  # noqa: N803
        self.objects.take(Key)
        return {}

    def _delete_objects(self, Delete: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
        for one in Delete["Objects"]:
            self.objects.take(one["Key"])
        return {}

    def _list_objects_v2(self, Prefix: str = "", Delimiter: str = "", MaxKeys: int = 0) -> dict[str, Any]:  # noqa: N803
        objects = self.objects
        if MaxKeys == 1:
            at = bisect_left(objects.order, Prefix)
            keys = [key for key in objects.order[at : at + 1] if key.startswith(Prefix)]
            return {"Contents": [objects[key].facts for key in keys], "KeyCount": len(keys)}
        if not Delimiter:
            keys = objects.below(Prefix)
            return {"Contents": [objects[key].facts for key in keys], "KeyCount": len(keys)}
        contents, folders = [], []
        for key, is_folder in objects.inside(Prefix):
            if is_folder:
                folders.append({"Prefix": key})
            else:
                contents.append(objects[key].facts)
        return {"Contents": contents, "CommonPrefixes": folders, "KeyCount": len(contents) + len(folders)}


class FileSystem(Store):
    """One as HDFS is: a file is created by one, and a directory is moved in one step."""

    scheme: ClassVar[str] = "hdfs"

    def __init__(self, name: str, scheduler: Scheduler, *, lost: float = 0.0) -> None:
        self.bucket, self.scheduler, self.lost, self.fails = name, scheduler, lost, ""
        self.objects = Objects()

    def _step(self, verb: str, path: str) -> str:
        self.scheduler.step(f"{self.bucket} {verb} {path}", changes=verb not in ("look at", "list", "read"))
        return path.strip("/")

    def _answer(self) -> None:
        """Answer with what was changed, unless the answer is lost."""
        scheduler = self.scheduler
        if self.lost and scheduler.current is not None and scheduler.random.random() < 0.2 * self.lost:
            scheduler.step("the answer is lost")
            raise silent(f"hdfs://{self.bucket}", "it does not answer in time")

    def _is_directory(self, key: str) -> bool:
        order = self.objects.order
        at = bisect_left(order, f"{key}/")
        return at < len(order) and order[at].startswith(f"{key}/")

    def entry(self, path: str) -> StoreEntry:
        key = self._step("look at", path)
        name = key.rpartition("/")[2]
        if (item := self.objects.get(key)) is not None:
            return _entry_of(name, item)
        if self._is_directory(key):
            return _folder(name)
        raise _missing(path)

    def listing(self, path: str) -> Sequence[StoreEntry]:
        key = self._step("list", path)
        if key in self.objects:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        prefix = f"{key}/"
        if not self._is_directory(key):
            raise _missing(path)
        entries = []
        for name, is_folder in self.objects.inside(prefix):
            if is_folder:
                entries.append(_folder(name[len(prefix) : -1]))
            elif name != prefix:
                entries.append(_entry_of(name[len(prefix) :], self.objects[name]))
        return sorted(entries, key=lambda entry: entry.name)

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
        is_lost = self.lost and self.scheduler.current is not None and self.scheduler.random.random() < 0.1 * self.lost
        if is_lost or (self.fails and self.fails in key):
            self.fails = ""
            raise silent(f"hdfs://{self.bucket}", "the question has not come through")
        if key in self.objects:
            return False
        self._keep(key, data)
        self._answer()
        return True

    def delete(self, path: str) -> None:
        key = self._step("delete", path)
        for name in (key, *self.objects.below(f"{key}/")):
            self.objects.take(name)
        self._answer()

    def make_directory(self, path: str) -> None:
        self._keep(self._step("make", path) + "/", b"")

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        key, target = self._step("move", path), new.strip("/")
        if target in self.objects or self._is_directory(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        moved = [(name, self.objects.take(name)) for name in (key, *self.objects.below(f"{key}/"))]
        if not any(item is not None for _, item in moved):
            raise _missing(path)
        for name, item in moved:
            if item is not None:
                self._keep(target + name[len(key) :], item.data)
        self._answer()

    def _keep(self, key: str, data: bytes) -> None:
        self.objects[key] = Object(key, data, self.scheduler.now, {})


def copy_store(original: Bucket | FileSystem, name: str) -> Bucket | FileSystem:
    """A copy, as of a backup, under another name."""
    copy = type(original)(name, original.scheduler, lost=original.lost)
    copy.objects = Objects(original.objects)
    return copy


def _entry_of(name: str, item: Object) -> StoreEntry:
    return StoreEntry(name=name, size_bytes=len(item.data), modified_ms=int(item.at * 1000), is_directory=False)


def _folder(name: str) -> StoreEntry:
    return StoreEntry(name=name, size_bytes=0, modified_ms=0, is_directory=True)


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


# A path is asked for again and again, and does not change: each part of it is made once. The types of a record neither.
_child, _text, _located = RemotePath.__truediv__, RemotePath.__str__, project.locate
_parent: Any = RemotePath.__dict__.get("parent") or PurePath.__dict__["parent"]


def _kept_child(path: RemotePath, key: Any) -> Any:
    if type(key) is not str:
        return _child(path, key)
    children = path.__dict__.setdefault("children", {})
    if key not in children:
        children[key] = _child(path, key)
        if "/" not in key and key not in ("", ".", ".."):
            children[key].__dict__["above"] = path
    return children[key]


def _keep_on_path(name: str, make: Callable[[RemotePath], Any]) -> Callable[[RemotePath], Any]:
    def kept(path: RemotePath) -> Any:
        attributes = path.__dict__
        if name not in attributes:
            attributes[name] = make(path)
        return attributes[name]

    return kept


_inside = _keep_on_path("inside", lambda path: "/" + "/".join(path.parts[2:]))
_key = _keep_on_path("key", lambda path: f"{path.parts[0].rstrip(':')}://{path.parts[1]}")


def _store(path: RemotePath) -> Store:
    """As `store_of` finds it, without a lock."""
    key = _key(path)
    for whose, folder, other in store._in_place.get():
        if whose == key and _inside(path).startswith(f"{folder}/"):
            return other
    return store._stores[key]


@cache
def _kept_located(root: Path, place: str) -> Path:
    return _located(root, place, {})


KEPT_PATHS: tuple[tuple[Any, str, Any], ...] = (
    (RemotePath, "__truediv__", _kept_child),
    (RemotePath, "parent", property(_keep_on_path("above", _parent.fget))),
    (RemotePath, "__str__", _keep_on_path("text", _text)),
    (RemotePath, "_inside", property(_inside)),
    (RemotePath, "_store", property(_store)),
    (project, "locate", lambda root, place, settings: _kept_located(root, place)),
)
