"""The identity of a batch by its content, and all that is needed to plan the same batch again."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.checkpoint.directory import (
    COMPACT,
    RESTORE,
    Checkpoint,
    OffsetEntry,
    Part,
    body,
    broken_file,
    numbered_files,
    text_of,
)
from headrace.errors import CheckpointError, Finding, Where, reason

_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One entry of a source's log: the file's first line, and the lines of this entry.

    compacted: Spark's file of this number also repeats every earlier entry.
    """

    lines: tuple[str, ...]
    head: str = "v1"
    compacted: bool = False


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """What a checkpoint plans for one batch: the text of its offsets, and the entries of source logs that it takes.

    A file source's offset is but a number of its own log. Two copies of a checkpoint can give one number to different
    files, so the batch holds the entries: those behind the batch before and up to its own number. Of a source that
    writes where it began, a first batch holds that. A source that was renamed has the name by which ledgers know it.
    """

    batch: int
    offsets: str
    logs: Mapping[str, Mapping[int, LogEntry]]

    @property
    def entry(self) -> OffsetEntry:
        """The offsets as values."""
        return OffsetEntry.parse(self.batch, self.offsets, Path(Part.OFFSETS, str(self.batch)))

    def digest(self, roots: Sequence[Path] = ()) -> str:
        """Sixty-four hexadecimal digits: the same for the same rows, different for others.

        A file below one of `roots` counts by its path from there, so that a moved project keeps its identity.
        """
        entry = self.entry
        facts = [entry.watermark_ms, dict(self.content(roots))]
        return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def content(self, roots: Sequence[Path] = ()) -> Iterator[tuple[str, Any]]:
        """What each source gives, by its name: the files, or the offset where the batch ends."""
        both = (place for root in roots for place in (root.absolute(), root.resolve()))
        places = tuple(dict.fromkeys(f"{str(place).rstrip('/')}/" for place in both))
        for name, offset in sorted(self.entry.offsets.items()):
            entries = self.logs.get(name, {})
            lines = [line for number in sorted(entries) for line in entries[number].lines]
            if log_offset(offset) is not None:
                yield name, sorted(_file(json.loads(line), places) for line in lines)
            else:
                # One text for all ways to write the same JSON.
                end = json.dumps(None if offset is None else _parse(offset), sort_keys=True, separators=(",", ":"))
                yield name, [end, lines]

    def dumps(self) -> str:
        """The batch as a short text, which `loads` reads."""
        logs = {
            name: {str(number): asdict(entry) for number, entry in entries.items()}
            for name, entries in self.logs.items()
        }
        text = json.dumps({"batch": self.batch, "offsets": self.offsets, "logs": logs}, separators=(",", ":"))
        return base64.b64encode(zlib.compress(text.encode())).decode("ascii")

    @classmethod
    def loads(cls, text: str) -> PlannedBatch:
        """Read what `dumps` wrote; raises ValueError."""
        try:
            facts = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
            logs = {
                name: {
                    int(number): LogEntry(**{**entry, "lines": tuple(entry["lines"])}) for number, entry in log.items()
                }
                for name, log in facts["logs"].items()
            }
            return cls(batch=facts["batch"], offsets=facts["offsets"], logs=logs)
        except (zlib.error, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is not a planned batch: {reason(error)}") from error


def planned_batch(checkpoint: Checkpoint, batch: int) -> PlannedBatch | None:
    """What the checkpoint plans for `batch`; None when it does not, or has no batch before it from which it begins.

    Reads only the files of this batch. Raises CheckpointError when one of them is damaged.
    """
    file = checkpoint.root / Part.OFFSETS / str(batch)
    text = text_of(file)
    before = checkpoint.offset(batch - 1) if batch else OffsetEntry(batch=-1)
    if text is None or before is None:
        return None
    logs: dict[str, dict[int, LogEntry]] = {}
    for name, offset in OffsetEntry.parse(batch, text, file).offsets.items():
        folder, start, end = checkpoint.root / Part.SOURCES / name, before.offsets.get(name), log_offset(offset)
        if end is not None:
            begin = log_offset(start)
            entries = log_entries(folder, -1 if begin is None else begin, end)
            _require_files(entries, folder)
            logs[name] = entries
        elif start is None and (first := first_entry(folder)) is not None:
            logs[name] = {0: first}
    return PlannedBatch(batch=batch, offsets=text, logs=logs)


def chain_digest(previous: str | None, digest: str) -> str:
    """The digest of all batches up to this one, from that of the batches before; None: there is none before."""
    return hashlib.sha256(f"{previous or ''}\n{digest}".encode()).hexdigest()


def differences(ours: PlannedBatch, theirs: PlannedBatch, roots: Sequence[Path] = ()) -> list[str]:
    """Where two plans of one batch differ, in words: the files or offsets of each source."""
    here, there = dict(ours.content(roots)), dict(theirs.content(roots))
    sentences = []
    for name in sorted({*here, *there}):
        if here.get(name) == there.get(name):
            continue
        sentences.append(f"source '{name}': {_describe(here.get(name))} against {_describe(there.get(name))}")
    if not sentences and ours.entry.watermark_ms != theirs.entry.watermark_ms:
        sentences.append(f"watermark {ours.entry.watermark_ms} against {theirs.entry.watermark_ms}")
    return sentences


def _describe(content: Any) -> str:
    if content is None:
        return "nothing"
    if content and isinstance(content[0], str):
        return content[0] if len(content[0]) <= 80 else f"{content[0][:77]}..."
    names = [path.rpartition("/")[2] for path, _ in content]
    return f"{len(names)} files ({', '.join(names[:3])}{', ...' if names[3:] else ''})"


def _require_files(entries: Mapping[int, LogEntry], folder: Path) -> None:
    for number, entry in entries.items():
        for line in entry.lines:
            try:
                facts = json.loads(line)
                str(facts["path"]), int(facts["timestamp"])
            except (ValueError, KeyError, TypeError) as error:
                raise broken_file(folder / str(number), f"a line names no file: {line[:40]!r}") from error


def log_offset(offset: str | None) -> int | None:
    """The number of the log's entry where the offset is that of a file source."""
    value = None if offset is None else _parse(offset)
    number = value.get("logOffset") if isinstance(value, dict) and len(value) == 1 else None
    return number if isinstance(number, int) else None


def _parse(offset: str) -> Any:
    try:
        return json.loads(offset)
    except ValueError:
        return offset


def _file(facts: Mapping[str, Any], places: Sequence[str]) -> tuple[str, int]:
    """A file's path, relative to the first place that it lies below, and its timestamp."""
    uri = urlsplit(facts["path"])
    path = unquote(uri.path) if uri.scheme in ("", "file") else facts["path"]
    for place in places:
        if path.startswith(place):
            return path.removeprefix(place), int(facts["timestamp"])
    return path, int(facts["timestamp"])


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


def missing_entry(log: Path, number: int, more: int = 0) -> Finding:
    """The finding for a gap in the log of a source."""
    others = f" and {more} more" if more else ""
    fault = f"the log of source '{log.name}' lacks entry {number}{others}: Spark cannot know which files it has read"
    return Finding(code="HR509", where=Where(file=str(log / str(number))), what=fault, fix=RESTORE)


def _read_compacted(file: Path, number: int) -> tuple[str, ...]:
    """The lines of one entry in a compacted file, which repeats the entries in their order: the newest are last."""
    lines: list[str] = []
    for line in _lines_from_the_end(file):
        try:
            batch = json.loads(line)["batchId"]
        except (ValueError, KeyError, TypeError) as error:
            raise broken_file(file, f"a line is not JSON: {line[:40]!r}") from error
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
