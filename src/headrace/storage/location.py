"""Where a project's storage, and the paths of its sources and sinks, are: on this machine's disks, or in a store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.storage.remote import RemotePath
from headrace.storage.store import SCHEMES, Store, StoreNotAsked, forget, keep

_EXTRAS = {"hdfs": "hdfs", "s3a": "s3"}
_LOCAL = re.compile(r"^file:/+", re.IGNORECASE)
_WRONG_FILE = re.compile(r"file:(?!/[^/]|///)", re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_WRITTEN = {
    "hdfs": "hdfs://HOST:8020/path; the user is that of HADOOP_USER_NAME",
    "s3a": "s3a://BUCKET/path; credentials are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from AWS's own "
    "files, or from the settings fs.s3a.*",
}
# Hadoop's settings by which each store is reached, by the scheme and the authority of its URLs.
_settings: dict[tuple[str, str], dict[str, str]] = {}
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.IGNORECASE)


def scheme_of(text: str) -> str | None:
    """The scheme of a path that is a URL; None for a local path."""
    match = _URL.match(text)
    return match["scheme"].lower() if match and match["scheme"].lower() != "file" else None


def is_remote(path: Path) -> bool:
    """Whether it lies beyond this machine."""
    return isinstance(path, RemotePath)


def locate(root: Path, text: str, settings: Mapping[str, str]) -> Path:
    """The storage that `text` names, of a project in `root`; Spark's `settings` say how a store is reached.

    Raises PlatformError where the package for it is not installed.
    """
    reach([text], settings)
    return place(text) if scheme_of(text) in SCHEMES else root / Path(_LOCAL.sub("/", text)).expanduser()


def reach(urls: Iterable[str], settings: Mapping[str, str]) -> None:
    """Set how the stores of these paths are reached; the newest settings of a store hold, as in Hadoop's own cache."""
    hadoop = {key: value for key, value in settings.items() if key.startswith("spark.hadoop.")}
    for url in urls:
        store = scheme_of(url) or "", _authority(url)
        if store[0] in SCHEMES and store[1] and _settings.get(store, {}) != hadoop:
            _settings[store] = hadoop
            forget(*store)


def place(text: str) -> Path:
    """The path that an absolute path or URL names, in a store that is reached as `reach` was last called for it.

    Raises PlatformError where the package for its store is not installed. A path whose scheme `is_known` refuses does
    not exist.
    """
    scheme, authority = scheme_of(text), _authority(text)
    if scheme not in SCHEMES or not authority:
        return Path(_LOCAL.sub("/", text))
    keep(scheme, authority, lambda: _store(scheme, authority, _settings.get((scheme, authority), {})))
    return RemotePath(f"{scheme}://{text.partition('://')[2]}")


def path_fault(text: str) -> tuple[str, str] | None:
    """What is wrong with a path that is written as a URL, and how to write it; None where nothing is."""
    scheme, authority = scheme_of(text), _authority(text)
    if _WRONG_FILE.match(text):
        return (
            "is not a file: URL of an absolute path of this machine",
            "write file:///absolute/path, or the path alone",
        )
    if scheme not in SCHEMES:
        return None
    account, _, server = authority.rpartition("@")
    port = "" if server.endswith("]") else server.partition(":")[2]
    if account:
        return "holds a user or a password", f"write {_WRITTEN[scheme]}"
    if scheme == "hdfs" and ":" in server and not (port.isdecimal() and 0 < int(port) < 65_536):
        return f"has the port '{port}', no number from 1 to 65535", f"write {_WRITTEN[scheme]}"
    if scheme == "s3a" and server and not _BUCKET.fullmatch(server):
        return f"has '{server}' in the place of a bucket, which is not a valid name of one", f"write {_WRITTEN[scheme]}"
    return None


def is_known(text: str) -> bool:
    """Whether `place` leads to what lies at the path `text`: it is local, or on a store that Headrace reaches."""
    scheme = scheme_of(text)
    return scheme is None or (scheme in SCHEMES and bool(_authority(text)))


def _authority(text: str) -> str:
    """The host or the bucket of a URL; empty where Hadoop's own configuration names it."""
    return text.partition("://")[2].partition("/")[0]


def _store(scheme: str, authority: str, settings: Mapping[str, str]) -> Store:
    try:
        # Each with its package, which other projects need not have.
        if scheme == "hdfs":
            from headrace.storage.hdfs import Hdfs

            return Hdfs.of(authority, settings)
        from headrace.storage.s3 import S3

        return S3.of(authority, settings)
    except ImportError as error:
        raise StoreNotAsked(
            code="HR011",
            what=f"a path on {scheme}:// needs the package {error.name}, which is not installed",
            fix=f"pip install 'headrace[{_EXTRAS[scheme]}]'",
        ) from error
