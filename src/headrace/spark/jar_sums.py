"""The SHA-256 sums of jars that Headrace fetches: a jar that has another one than is known is not kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

CHUNK_BYTES = 1 << 20


def read_sums(text: str) -> dict[str, str]:
    """The sums by the jars' names, from lines as `sha256sum` writes them."""
    lines = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name: sum_ for sum_, name in lines}


@cache
def known_sums() -> Mapping[str, str]:
    """The sums of the connectors' jars, with all that they need."""
    return read_sums((files("headrace.spark") / "jars.sha256").read_text(encoding="utf-8"))


def changed(jars: Iterable[Path], sums: Mapping[str, str]) -> list[str]:
    """The names of the jars that are not those whose sums are known."""
    return [jar.name for jar in jars if jar.name in sums and sum_of(jar) != sums[jar.name]]


def sum_of(path: Path) -> str:
    """The SHA-256 sum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
