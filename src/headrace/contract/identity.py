"""Which thing of which system a connector reads or writes, spelled in one way only."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

# Plain data without secrets, as JSON can keep it: `system`, and below it what identifies one thing there.
Identity: TypeAlias = Mapping[str, Any]

_S3 = {"s3": "s3a", "s3n": "s3a"}


def canonical_path(path: str) -> str:
    """Return `path` in one spelling: absolute and without links on this machine's disks, without secrets elsewhere."""
    scheme, separator, rest = path.partition("://")
    if separator and scheme.lower() != "file":
        authority, _, below = rest.partition("/")
        account, at, host = authority.rpartition("@")
        # Azure writes container@account there, which is not a secret.
        kept = host if ":" in account else f"{account}{at}{host}"
        plain = os.path.normpath(f"/{below}").lstrip("/")
        return f"{_S3.get(scheme.lower(), scheme.lower())}://{kept.lower()}/{plain}"
    return os.path.realpath(re.sub(r"^file:/+", "/", path, flags=re.IGNORECASE))


def canonical_address(url: str) -> str:
    """Return `url` in one spelling, without account and options, which may be secret; other texts as they are."""
    parts = urlsplit(url)
    if not parts.scheme:
        return url.rstrip("/")
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme.lower()}://{host}{parts.path.rstrip('/')}"


def canonical_table(table: str) -> str:
    """Return `database.table` in lower case: one text for each table of Spark's own catalog, however it is written."""
    parts = table.lower().split(".")
    if len(parts) > 1 and parts[0] == "spark_catalog":
        parts = parts[1:]
    return ".".join(parts if len(parts) > 1 else ["default", *parts])


def canonical_server(host: str, port: int | str) -> str:
    """Return `host:port` in one spelling; the names of this machine's own loopback are one."""
    return f"{'localhost' if is_loopback(host) else host.lower().rstrip('.')}:{port}"


def canonical_servers(servers: str, port: int | str = "") -> list[str]:
    """Return those of a list `host:port, host:port`, sorted; `port` is that of a host without one."""
    pairs = [text.strip().rpartition(":") if ":" in text else (text.strip(), "", port) for text in servers.split(",")]
    return sorted({canonical_server(host, number) for host, _, number in pairs if host})


def is_loopback(host: str) -> bool:
    """Return whether a connection to `host` stays within this machine."""
    if not host or host.startswith("/") or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def same_place(one: Identity, other: Identity) -> bool:
    """Return whether two identities name one place; formats do not count, and of two lists one common member is enough.

    A directory is one place, whatever lies in it.
    """
    if all("path" in identity and "table" not in identity for identity in (one, other)):
        return bool(one["path"] == other["path"])
    parts = (one.keys() | other.keys()) - {"format"}
    return all(_same(one.get(part), other.get(part)) for part in parts)


def describe_identity(identity: Identity) -> str:
    """Write an identity in words: the path or the table, and the system that holds it."""
    within = "/".join(str(identity[part]) for part in ("server", "database") if part in identity)
    name = identity.get("table") or ", ".join(identity.get("topics") or ())
    place = str(within or identity.get("path") or ", ".join(identity.get("servers") or ()) or identity.get("system"))
    return f"'{name}' in {place}" if name else place


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return one == other or not set(one).isdisjoint(other)
    return bool(one == other)
