"""What the files of a query's sources were when they were read.

Spark's log of a file source keeps the path of each file, and the time of modification that it had when a batch was
planned over it for the first time. What it was when a batch was planned over it last stands next to the archive: one
JSON line for each file, in parts, because a store beyond this machine takes a file as a whole only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.checkpoint.archive import damaged_line, lines_of
from headrace.storage import json_lines
from headrace.storage.remote import store_at

# The setting of a query's session that names the directory of its archive.
READ_FILES = "headrace.readFiles"
_PART_LINES, _REWRITTEN_LINES = 1_000_000, 5_000


@dataclass(frozen=True, kw_only=True)
class ReadFile:
    """The known marks of a file's content; digest: of a small file on a disk."""

    modified_ms: int
    size_bytes: int | None = None
    etag: str | None = None
    digest: str | None = None

    def is_same(self, other: ReadFile) -> bool:
        """Whether both are of one content: by the ETag, the digest, else by the size and the time of modification.

        A store may give whole seconds for one object, and milliseconds in a listing; a rounded time is off by one.
        """
        if self.etag and other.etag:
            return self.etag == other.etag
        if None not in (self.size_bytes, other.size_bytes) and self.size_bytes != other.size_bytes:
            return False
        if self.digest and other.digest:
            return self.digest == other.digest
        one, two = self.modified_ms, other.modified_ms
        return abs(one - two) <= 1 or (one // 1000 == two // 1000 and not (one % 1000 and two % 1000))


class ReadFiles:
    """The record of what the files of a query's batches were, in the directory of its archive. One process writes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._part: Path | None = None
        self._lines = 0
        self._last: Mapping[str, ReadFile] = {}

    def keep(self, files: Mapping[str, ReadFile]) -> None:
        """Add the files of a batch that is planned, by their paths. Raises OSError."""
        fresh = {path: file for path, file in files.items() if self._last.get(path) != file}
        if not fresh:
            return
        longest = _PART_LINES if store_at(self.home).appends else _REWRITTEN_LINES
        if self._part is None or self._lines >= longest:
            parts = _parts(self.home)
            newest = parts[-1] if parts else self.home / "read_files-000000.jsonl"
            self._lines = lines_of(newest)
            number = int(newest.stem[-6:]) + (self._lines >= longest)
            self._part = self.home / f"read_files-{number:06d}.jsonl"
        json_lines.append(self._part, [_line(path, file) for path, file in fresh.items()], sync=False)
        self._lines, self._last = self._lines + len(fresh), files

    def read(self) -> dict[str, ReadFile]:
        """What each file was when a batch was planned over it last. Raises CheckpointError."""
        files = {}
        part = self.home
        try:
            for part in _parts(self.home):
                for line in json_lines.read(part, skip="any"):
                    path = line.pop("path")
                    files[path] = ReadFile(**line)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise damaged_line(part, 0, error) from error
        return files

    def note_move(self, old: str, new: str) -> None:
        """Keep the files below the directory `old` under their paths below `new` as well. Raises OSError."""
        below = {path: file for path, file in self.read().items() if path.startswith(f"{old}/")}
        self.keep({new + path.removeprefix(old): file for path, file in below.items()})


def _parts(home: Path) -> list[Path]:
    return sorted(home.glob("read_files-*.jsonl"))


def _line(path: str, file: ReadFile) -> dict[str, Any]:
    return {"path": path, **{key: value for key, value in vars(file).items() if value is not None}}
