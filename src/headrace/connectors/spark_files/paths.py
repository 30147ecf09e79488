"""The paths of a file source: Hadoop's globs, the URIs in Spark's log, and what lies on a local disk or in a store."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from headrace.checkpoint.sources import ReadFile
from headrace.storage.location import place
from headrace.storage.remote import at
from headrace.storage.store import StoreEntry

_GLOB = re.compile(r"[*?\[\]{}]")
# What is read as a whole once more, to know it again.
_DIGESTED_BYTES = 64 << 10
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class FoundFile:
    """A file of a `listing`, and since when it is as it is, in milliseconds since 1970.

    nested: whether it lies in a subdirectory that is not key=value, into which Spark looks only if it is asked to.
    """

    path: str
    name: str
    read: ReadFile
    since_ms: int
    nested: bool = False


def present(path: str) -> ReadFile:
    """Ask once what a file is now, in a store that Headrace reaches. Raises OSError, PlatformError."""
    store, inside = at(place(path))
    return _of_entry(store.entry(inside))


def with_digest(file: ReadFile, path: str) -> ReadFile:
    """Add the digest of what a small file on this machine holds."""
    if not is_local(path) or (file.size_bytes or 0) > _DIGESTED_BYTES:
        return file
    with suppress(OSError), open(local(path), "rb") as content:
        return replace(file, digest=hashlib.blake2b(content.read(_DIGESTED_BYTES + 1), digest_size=8).hexdigest())
    return file


def is_changed(then: ReadFile, now: ReadFile, path: str) -> bool:
    """Whether a file holds something else; one of another time alone is read, if it is small."""
    return not then.is_same(now) and not (then.digest and then.is_same(with_digest(now, path)))


def _of_entry(entry: StoreEntry) -> ReadFile:
    return ReadFile(modified_ms=entry.modified_ms, size_bytes=entry.size_bytes, etag=entry.etag)


def is_glob(path: str) -> bool:
    """Whether Hadoop takes `path` for a pattern."""
    return _GLOB.search(path) is not None


def find_pattern(path: str) -> str | None:
    """The part of a local `path` that is there by this very name, and that Hadoop would take for a pattern; or None."""
    parts = local(path).split("/")
    for end, part in enumerate(parts, start=1):
        if _GLOB.search(part) and os.path.lexists("/".join(parts[:end])):
            return "/".join(parts[:end])
    return None


def is_local(path: str) -> bool:
    """Whether `path` lies on this machine's file system: it has no scheme, or `file:`."""
    scheme = urlsplit(path).scheme
    return scheme == "file" or "://" not in path


def exists(path: str) -> bool:
    """Whether something lies at the absolute `path`, that is known. Raises PlatformError."""
    return os.path.exists(path) if is_local(path) else place(path).exists()


def normal(path: str) -> str:
    """A path as `listing` gives it."""
    return path if "://" in path else os.path.normpath(path)


def base(path: str) -> str:
    """The directory below which key=value directories become columns: `path` up to its first pattern."""
    match = _GLOB.search(path)
    return path if match is None else path[: match.start()].rpartition("/")[0] or "/"


def local(path: str) -> str:
    """A path of the configuration without its scheme, if that is `file:`."""
    return normal(re.sub(r"^file:/+", "/", path))


def from_log(uri: str) -> str:
    """The path that an entry of Spark's log means: it is written as a percent-encoded URI."""
    return re.sub(r"^file:/+", "/", unquote(uri))


def patterns(path: str) -> Iterator[str]:
    """`path` without `{a,b}`: one pattern for each alternative, in the syntax of `fnmatch`."""
    match = _BRACES.search(path)
    if match is None:
        yield path.replace("[^", "[!")
        return
    for choice in match.group(1).split(","):
        yield from patterns(path[: match.start()] + choice + path[match.end() :])


def listing(path: str, *, hidden: bool = False) -> Iterator[FoundFile]:
    """The files that Spark finds under `path`, a directory or a glob, that is known.

    Those of hidden names, which Spark leaves out, only if `hidden`; what lies in hidden directories never. Raises
    PlatformError where a store does not answer.
    """
    for pattern in patterns(path):
        if not is_local(pattern):
            yield from _list_store(pattern, hidden)
            continue
        for root in glob.glob(pattern) if is_glob(pattern) else [pattern]:
            for file, nested in _list_disk(root, hidden) if os.path.isdir(root) else ((root, False),):
                with suppress(FileNotFoundError):
                    facts = os.stat(file)
                    read = ReadFile(modified_ms=facts.st_mtime_ns // 1_000_000, size_bytes=facts.st_size)
                    since_ms = int(max(facts.st_mtime, facts.st_ctime) * 1000)
                    yield FoundFile(file, os.path.basename(file), read, since_ms, nested)


def _list_disk(place: str, hidden: bool) -> Iterator[tuple[str, bool]]:
    queue = [(place, False)]
    while queue:
        folder, nested = queue.pop()
        try:
            with os.scandir(folder) as entries:
                inside = list(entries)
        except OSError:
            continue
        for entry in inside:
            if entry.is_dir():
                if not is_hidden(entry.name):
                    queue.append((entry.path, nested or "=" not in entry.name))
            elif hidden or not is_hidden(entry.name):
                yield entry.path, nested


def _list_store(pattern: str, hidden: bool) -> Iterator[FoundFile]:
    home = place(base(pattern))
    rest = pattern.removeprefix(base(pattern)).strip("/")
    queue = [(folder, False) for folder in (home.glob(rest) if rest else [home])]
    while queue:
        folder, nested = queue.pop()
        store, inside = at(folder)
        try:
            entries = store.listing(inside)
        except NotADirectoryError:
            # The pattern, or the path itself, names a file.
            name, folder = folder.name, folder.parent
            entries = [entry for entry in store.listing(at(folder)[1]) if entry.name == name]
        except OSError:
            continue
        for entry in entries:
            if entry.is_directory:
                if not is_hidden(entry.name):
                    queue.append((folder / entry.name, nested or "=" not in entry.name))
            elif hidden or not is_hidden(entry.name):
                yield FoundFile(str(folder / entry.name), entry.name, _of_entry(entry), entry.modified_ms, nested)


def is_hidden(name: str) -> bool:
    """Spark's rule: names that begin with a dot, or with an underscore unless it is a key=value directory."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def would_match(source: str, archive: str) -> bool:
    """Whether files moved below `archive` could be found by the source again.

    Spark's rule (FileStreamSource.SourceFileArchiver): both paths are cut to the depth of the shorter one and
    compared name by name.
    """
    target = [part for part in local(archive).split("/") if part]
    for pattern in patterns(local(source)):
        names = [part for part in pattern.split("/") if part]
        if all(fnmatch.fnmatchcase(name, part) for part, name in zip(names, target, strict=False)):
            return True
    return False
