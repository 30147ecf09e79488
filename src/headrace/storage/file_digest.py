"""What files hold, as a digest: the same for the same content under the same names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

# Of larger files, size and time of modification stand for the content.
WHOLE_BYTES = 8 << 20


def digest_of(paths: Iterable[str]) -> str:
    """A digest of all files below `paths`, hidden ones left out; `unknown` for what is not on this machine."""
    found = hashlib.sha256()
    for path in sorted(paths):
        if not os.path.exists(path):
            return "unknown"
        for name, file in sorted(_files(path)):
            found.update(f"{name}\0".encode())
            facts = os.stat(file)
            if facts.st_size <= WHOLE_BYTES:
                found.update(hashlib.sha256(Path(file).read_bytes()).digest())
            else:
                found.update(f"{facts.st_size} {facts.st_mtime_ns}".encode())
    return found.hexdigest()[:12]


def _files(path: str) -> Iterator[tuple[str, str]]:
    if os.path.isfile(path):
        yield "", path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = [each for each in folders if not each.startswith(("_", "."))]
        for name in names:
            if not name.startswith(("_", ".")):
                file = os.path.join(folder, name)
                yield os.path.relpath(file, path), file
