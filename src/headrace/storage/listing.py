"""What lies in a directory, by as few questions as its storage allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.storage.remote import RemotePath


def names_in(folder: Path) -> list[str]:
    """The names in `folder`. Raises OSError."""
    if isinstance(folder, RemotePath):
        return [each.name for each in folder.entries()]
    with os.scandir(folder) as listing:
        return [entry.name for entry in listing]


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, however deep; none where there is no such directory."""
    if isinstance(folder, RemotePath):
        yield from folder.files()
        return
    for home, _, names in os.walk(folder):
        yield from (Path(home) / name for name in names)
