"""Single entries of a source's log in the checkpoint, read without unfolding the whole log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.logs import COMPACT, body, broken, numbered, text_of
from headrace.errors import CheckpointError, Finding, Where

_VERSIONS = (1,)
_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One entry of a source's log: the file's first line, and the lines of this entry.

    compacted: Spark's file of this number also repeats every earlier entry.
    """

    lines: tuple[str, ...]
    head: str = "v1"
    compacted: bool = False


def log_entries(folder: Path, after: int, through: int) -> dict[int, LogEntry]:
    """The entries with numbers above `after` and up to `through`; raises CheckpointError when one is missing."""
    return {number: _entry(folder, number) for number in range(after + 1, through + 1)}


def first_entry(folder: Path) -> LogEntry | None:
    """Entry 0, in which a source without files writes where it began; None for a source without a log."""
    file = folder / "0"
    text = text_of(file)
    if text is None:
        return None
    _, lines = body(file, text, versions=_VERSIONS)
    return LogEntry(lines=tuple(lines), head=text.split("\n", 1)[0])


def _entry(folder: Path, number: int) -> LogEntry:
    file = folder / str(number)
    text = text_of(file)
    if text is not None:
        _, lines = body(file, text, versions=_VERSIONS)
        return LogEntry(lines=tuple(line for line in lines if line))
    compact = folder / f"{number}{COMPACT}"
    if compact.exists():
        return LogEntry(lines=_compacted(compact, number), compacted=True)
    # Spark removes single files some minutes after their entries were compacted.
    later = [file for other, file in numbered(folder).items() if other > number and file.name.endswith(COMPACT)]
    found = _compacted(later[0], number) if later else ()
    if not found:
        raise CheckpointError(
            Finding(
                code="HR509",
                where=Where(file=str(folder)),
                what=f"the log of source '{folder.name}' lacks entry {number}",
                fix="restore the file from a backup, or reset the query (headrace reset QUERY): Spark cannot tell "
                "which files it read",
            )
        )
    return LogEntry(lines=found)


def _compacted(file: Path, number: int) -> tuple[str, ...]:
    """The lines of one entry in a compacted file, which repeats the entries in their order: the newest are last."""
    found: list[str] = []
    for line in _lines_from_the_end(file):
        try:
            batch = json.loads(line)["batchId"]
        except (ValueError, KeyError, TypeError) as error:
            raise broken(file, f"a line is no JSON: {line[:40]!r}") from error
        if batch == number:
            found.append(line)
        elif batch < number:
            break
    return tuple(reversed(found))


def _lines_from_the_end(file: Path) -> Iterator[str]:
    """The lines behind the version, last first; a log of a million files is not read for one entry."""
    try:
        with file.open("rb") as opened:
            version = opened.readline()
            body(file, version.decode("utf-8", "replace"), versions=_VERSIONS)
            begin, end = len(version), opened.seek(0, 2)
            rest = b""
            while end > begin:
                start = max(begin, end - _BLOCK_BYTES)
                opened.seek(start)
                first, *lines = (opened.read(end - start) + rest).split(b"\n")
                for line in reversed(lines):
                    if line:
                        yield line.decode("utf-8")
                rest, end = first, start
            if rest:
                yield rest.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise broken(file, f"it cannot be read: {error}") from error
