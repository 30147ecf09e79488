"""What OpenLineage calls the things that sources read and sinks write, by its naming rules and their identities."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

# Their schemes as OpenLineage writes them; the names have no leading slash, for they are keys and no paths.
_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "wasbs": "wasbs"}


@dataclass(frozen=True)
class Dataset:
    """A dataset's two names: where it lies, and what it is called there."""

    namespace: str
    name: str


def datasets(identity: Mapping[str, Any] | None) -> tuple[Dataset, ...]:
    """The datasets of a source or a sink; none where it says nothing of itself, or is no store, as a socket.

    Source: OpenLineage's specification, "Dataset naming"; a table of SQLite and of Spark's own catalog has no rule.
    """
    facts = identity or {}
    system, table = str(facts.get("system", "")), facts.get("table")
    if "topics" in facts:
        return tuple(Dataset(f"{system}://{facts['servers'][0]}", str(topic)) for topic in facts["topics"])
    if "server" in facts and table is not None:
        name = f"{facts['database']}.{table}" if "database" in facts else str(table)
        return (Dataset(f"{system}://{facts['server']}", name),)
    if "path" in facts:
        place = of_path(str(facts["path"]))
        return (place if table is None else Dataset(f"{system}://{place.name}", str(table)),)
    if table is None:
        return ()
    catalog = str(facts.get("catalog", ""))
    if "warehouse" in facts:
        return (Dataset(catalog, posixpath.join(str(facts["warehouse"]), str(table))),)
    return (Dataset(catalog if "://" in catalog else f"{system}://{catalog}".removesuffix("://"), str(table)),)


def of_path(path: str) -> Dataset:
    """The dataset of a directory or a file, by its path in one spelling."""
    parts = urlsplit(path)
    if not parts.netloc and parts.scheme in ("", "file"):
        return Dataset("file", parts.path if parts.scheme else path)
    scheme = _OBJECT_STORES.get(parts.scheme)
    name = parts.path.lstrip("/") or "/" if scheme else parts.path or "/"
    return Dataset(f"{scheme or parts.scheme}://{parts.netloc}", name)
