"""Where the storage of a project is: on this machine's disks, or in a store that every machine reaches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import Finding, PlatformError
from headrace.storage.remote import RemotePath
from headrace.storage.store import SCHEMES, Store, keep

_EXTRAS = {"hdfs": "hdfs", "s3a": "s3"}
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.IGNORECASE)


def scheme_of(text: str) -> str | None:
    """The scheme of a storage that is named by a URL; None for a local path."""
    match = _URL.match(text)
    return match["scheme"].lower() if match and match["scheme"].lower() != "file" else None


def is_remote(path: Path) -> bool:
    """Whether it lies beyond this machine."""
    return isinstance(path, RemotePath)


def located(root: Path, text: str, settings: Mapping[str, str]) -> Path:
    """The storage that `text` names, of a project in `root`; Spark's `settings` say how a store is reached.

    Raises PlatformError where the package for it is not installed.
    """
    if scheme_of(text) not in SCHEMES:
        return root / text
    scheme, authority = str(scheme_of(text)), text.partition("://")[2].partition("/")[0]
    keep(scheme, authority, lambda: _store(scheme, authority, settings))
    return RemotePath(text)


def _store(scheme: str, authority: str, settings: Mapping[str, str]) -> Store:
    try:
        # Each with its package, which other projects need not have.
        if scheme == "hdfs":
            from headrace.storage.hdfs import Hdfs

            return Hdfs.of(authority, settings)
        from headrace.storage.s3 import S3

        return S3.of(authority, settings)
    except ImportError as error:
        raise PlatformError(
            Finding(
                code="HR832",
                what=f"storage on {scheme}:// needs the package {error.name}, which is not installed",
                fix=f"pip install 'headrace[{_EXTRAS[scheme]}]'",
            )
        ) from error
