"""The sources in a checkpoint: the names that it knows them under, and single entries of their logs.

A ledger distinguishes batches by digests, in which the sources have the names of that time. So the checkpoint keeps the
name by which a ledger knows each source that was renamed.

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
    Part,
    body,
    broken_file,
    missing_entry,
    numbered_files,
    replace_file,
    text_of,
)
from headrace.errors import CheckpointError, reason
from headrace.storage import durable

FILE = "headrace_sources.json"
_FURTHER = re.compile(r"(?P<name>.+)__(?P<number>[2-9]|[1-9][0-9]+)\Z")
_BLOCK_BYTES = 64 << 10


def ledger_names(root: Path) -> dict[str, str]:
    """By the present name of a source, the one by which ledgers know it; only of those that were renamed."""
    file = root / FILE
    text = text_of(file)
    if text is None:
        return {}
    try:
        return {str(name): str(former) for name, former in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise broken_file(file, "it names no sources") from error


def rename_for_ledgers(root: Path, names: Mapping[str, str]) -> None:
    """Keep the names by which ledgers know renamed sources, old names to new ones; done again, it changes nothing."""
    former = ledger_names(root)
    changed = dict(former)
    for old, new in names.items():
        if new not in former:
            changed[new] = changed.pop(old, old)
    if changed != former:
        durable.replace_file(root / FILE, json.dumps(changed) + "\n")


def rename_logs(root: Path, names: Mapping[str, str]) -> None:
    """Give the sources' own logs their new names."""
    folder = root / Part.SOURCES
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        new = folder / rename_use(path.name, names)
        if new != path:
            durable.move(path, new)


def rename_offsets(root: Path, names: Mapping[str, str]) -> None:
    """Rename the sources in the offsets of each batch; the newest last, as the mark that all is done."""
    for file in numbered_files(root / Part.OFFSETS).values():
        text = text_of(file)
        changed = None if text is None else rename_in_offsets(text, names)
        if changed is not None and changed != text:
            replace_file(file, changed)


def rename_use(use: str, names: Mapping[str, str]) -> str:
    """The new name of a source, or of a further use of it."""
    source = source_of(use)
    return names.get(source, source) + use.removeprefix(source)


def rename_in_offsets(text: str, names: Mapping[str, str]) -> str:
    """The offsets of a batch, as Spark writes them by the sources' names, with other names."""
    version, _, rest = text.partition("\n")
    if not names or version != "v2":
        return text
    facts, *lines = rest.split("\n")
    parts = (line.partition(":") for line in lines)
    return "\n".join([version, facts, *(f"{rename_use(name, names)}{colon}{offset}" for name, colon, offset in parts)])


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
