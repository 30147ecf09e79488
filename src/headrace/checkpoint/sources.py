"""The sources in a checkpoint: the names that it knows them under, and single entries of their logs.

The first use has the source's own name, so that a query with one use keeps its checkpoint; the others follow the order
of the plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.logs import (
    COMPACT,
    body,
    broken_file,
    missing_entry,
    numbered_files,
    text_of,
)
from headrace.errors import CheckpointError, reason

_FURTHER = re.compile(r"(?P<name>.+)__(?P<number>[2-9]|[1-9][0-9]+)\Z")
_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True)
class SourceNames:
    """The names of a query's sources now, and those that Spark knows them by, their first ones.

    The checkpoint, its archive, the ids of topics, the quarantine, the forms and the ledger have the names of Spark.

    by_name: Spark's name by that of now; of sources that are no longer declared, by the last one.
    declared: the names of now.
    """

    by_name: Mapping[str, str]
    declared: tuple[str, ...]

    @classmethod
    def same(cls, *names: str) -> SourceNames:
        """Return the names of sources of which none was renamed."""
        return cls({name: name for name in names}, names)

    def in_spark(self, use: str) -> str:
        """Return Spark's name of a source, or of a further use of it."""
        return _rename_use(use, self.by_name)

    def now(self, use: str) -> str:
        """Return the name now of what Spark calls `use`."""
        return _rename_use(use, {first: name for name, first in self.by_name.items()})


def _rename_use(use: str, names: Mapping[str, str]) -> str:
    source = source_of(use)
    return names.get(source, source) + use.removeprefix(source)


def use_name(source: str, number: int) -> str:
    """The name of the `number`-th use of a source, counted from 1."""
    return source if number == 1 else f"{source}__{number}"


def source_of(use: str) -> str:
    """The source whose further use has this name, or the name itself."""
    match = _FURTHER.match(use)
    return match.group("name") if match else use


def further_uses(sources: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Those of the `known` names that are further uses of `sources`, in order."""
    own = set(sources)
    return tuple(sorted(name for name in known if name not in own and source_of(name) in own))


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
    return None if text is None else LogEntry(lines=tuple(body(file, text)[1]), head=text.split("\n", 1)[0])


def _entry(folder: Path, number: int) -> LogEntry:
    file = folder / str(number)
    text = text_of(file)
    if text is not None:
        return LogEntry(lines=tuple(filter(None, body(file, text)[1])))
    compact = folder / f"{number}{COMPACT}"
    if compact.exists():
        return LogEntry(lines=_read_compacted(compact, number), compacted=True)
    # Spark removes single files some minutes after their entries were compacted.
    later = [file for other, file in numbered_files(folder).items() if other > number and file.name.endswith(COMPACT)]
    compacted = _read_compacted(later[0], number) if later else ()
    if not compacted:
        raise CheckpointError(missing_entry(folder, number))
    return LogEntry(lines=compacted)


def _read_compacted(file: Path, number: int) -> tuple[str, ...]:
    """The lines of one entry in a compacted file, which repeats the entries in their order: the newest are last."""
    lines: list[str] = []
    for line in _lines_from_the_end(file):
        try:
            batch = json.loads(line)["batchId"]
        except (ValueError, KeyError, TypeError) as error:
            raise broken_file(file, f"a line is no JSON: {line[:40]!r}") from error
        if batch == number:
            lines.append(line)
        elif batch < number:
            break
    return tuple(reversed(lines))


def _lines_from_the_end(file: Path) -> Iterator[str]:
    """The lines behind the version, last first; a log of a million files is not read for one entry."""
    try:
        with file.open("rb") as opened:
            version = opened.readline()
            body(file, version.decode("utf-8", "replace"))
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
        raise broken_file(file, f"it cannot be read: {reason(error)}") from error
