"""The archive of a query's batches, which outlives Spark's retention: one JSON line for each committed batch."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from headrace.checkpoint.directory import Checkpoint, OffsetEntry, Part, numbered_files
from headrace.errors import CheckpointError, Finding, Where, reason
from headrace.storage import json_lines
from headrace.storage.durable import publish, replace_file
from headrace.storage.private import writing_to
from headrace.storage.remembered import remembering
from headrace.storage.remote import store_at

# Lines that a power failure loses are taken from Spark's own files again, which reach back 100 batches.
_SYNC_EVERY = 16
OPEN_LINES = 10_000
"""With so many lines the open file is closed. A start reads it whole, which takes a tenth of a second."""
REWRITTEN_LINES = 1_000
"""The same limit in stores, where each added line puts the whole file again."""
KEPT_OPEN = 200
"""Twice what Spark keeps of its own: what a start compares with the checkpoint is in the open file."""
_FACTS = ("batch", "watermark_ms", "timestamp_ms", "offsets")
_NAME = re.compile(r"(\d{6,})-(\d+)-(\d+)\.jsonl\.gz")


@dataclass(frozen=True, kw_only=True)
class ArchivedBatch:
    """A committed batch and the watermark of the next one (None: its commit file was gone)."""

    entry: OffsetEntry
    next_watermark_ms: int | None


class Archive:
    """An append-only file of batches; of two lines about one batch the later counts.

    A line is whole when it ends; what a crash leaves of a line is cut off before the next one is written. After a
    rewind a line says from which batch on the earlier ones are void. Once the file is long, its older lines go into a
    closed file in the directory next to it, so that a start reads only the newest batches. One process writes; any may
    read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next: int | None = None
        self._lines = 0
        self._conf: Mapping[str, str] = {}
        self._unsynced = 0
        # The batches that Spark had purged before this archive saw them.
        self.gaps: list[Finding] = []

    def catch_up(self, checkpoint: Checkpoint) -> int:
        """Append the committed batches that are missing here; return how many.

        The first call compares with everything that the checkpoint still has; later ones look only for the next batch.
        """
        with writing_to(self.path, called="archive of batches"):
            if self._next is None:
                self._lines = json_lines.count(self.path)
                self._close_if_long()
            elif (followed := self._follow(checkpoint, self._next)) is not None:
                return followed
            with remembering(checkpoint.root):
                return self._compare(checkpoint)

    @property
    def folder(self) -> Path:
        """The directory of the closed files."""
        return self.path.with_suffix("")

    def entries(self, since: int = 0) -> dict[int, OffsetEntry]:
        """The offsets of every archived batch from `since` on, in order."""
        return {batch: archived.entry for batch, archived in self.batches(since).items()}

    def batches(self, since: int = 0) -> dict[int, ArchivedBatch]:
        """Every archived batch from `since` on, in order; empty when there is no archive yet.

        Only the files that hold them are read.
        """
        return {batch: archived for batch, archived in sorted(self._read_files(since).items()) if batch >= since}

    def size(self) -> int:
        """How many batches are archived, nearly: those that a rewind has made void count as well. Raises OSError."""
        return sum(segment.last - segment.first + 1 for segment in segments(self.folder)) + json_lines.count(self.path)

    def _read_files(self, since: int) -> dict[int, ArchivedBatch]:
        """Read all batches of the files that hold those from `since` on."""
        batches: dict[int, ArchivedBatch] = {}
        # The open file comes first: what is closed afterwards is in it as well, and has no smaller number.
        with _readable(self.path):
            current = json_lines.read(self.path)
            closed = segments(self.folder, current[0].get("segment", 1) if current else None)
        for file, lines in (
            *((segment.file, segment.lines()) for segment in needed(closed, since)),
            (self.path, current),
        ):
            with _readable(file):
                batches = _apply_lines(batches, file, lines)
        return batches

    def void_after(self, batch: int) -> None:
        """Declare the batches after `batch` void. Raises OSError."""
        self.note({"void_after": batch})

    def note(self, line: Mapping[str, Any]) -> None:
        """Append a line about the batches so far, if there are any. Raises OSError."""
        if self.path.exists() or segments(self.folder):
            self._append([dict(line)], sync=True)

    def _compare(self, checkpoint: Checkpoint) -> int:
        done = checkpoint.last_committed
        if done is None:
            return 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        reachable = [batch for batch in numbered_files(checkpoint.root / Part.OFFSETS) if batch <= done]
        archived = self._read_files(min(reachable, default=done))
        if not any(batch <= done for batch in archived):
            archived = self._read_files(0)
        lines = []
        if max(archived, default=-1) > done:
            lines.append({"void_after": done})
        read = (_read(checkpoint, batch) for batch in reachable)
        fresh = [batch for batch in read if batch and batch != archived.get(batch.entry.batch)]
        newest = max((batch for batch in archived if batch <= done), default=-1)
        self._miss(newest + 1, min(reachable, default=done + 1))
        self._conf = {}
        self._write(lines, fresh)
        self._next = done + 1
        return len(fresh)

    def _follow(self, checkpoint: Checkpoint, batch: int) -> int | None:
        """How many batches from `batch` on are archived now; None: it was purged, or there was a rewind behind it."""
        fresh: list[ArchivedBatch] = []
        commits = checkpoint.root / Part.COMMITS
        while (commits / str(batch)).exists():
            archived = _read(checkpoint, batch)
            if archived is None:
                break
            fresh.append(archived)
            batch += 1
        if not fresh and not (commits / str(batch - 1)).exists():
            return None
        self._write([], fresh)
        self._next = batch
        return len(fresh)

    def _miss(self, first: int, reached: int) -> None:
        if first < reached:
            self.gaps.append(
                Finding(
                    code="HR522",
                    where=Where(file=str(self.path)),
                    what=f"batches {first} to {reached - 1} were purged by Spark before they were archived",
                    fix="raise spark.sql.streaming.minBatchesToRetain; what was read before batch "
                    f"{reached} can no longer be verified",
                )
            )

    def _write(self, lines: list[dict[str, Any]], fresh: list[ArchivedBatch]) -> None:
        for archived in fresh:
            lines.append(_line(archived, self._conf))
            self._conf = archived.entry.conf
        if not lines:
            return
        self._unsynced += len(lines)
        sync = self._unsynced >= _SYNC_EVERY
        self._append(lines, sync=sync)
        if sync:
            self._unsynced = 0
        self._lines += len(lines)
        self._close_if_long()

    def _append(self, lines: list[dict[str, Any]], *, sync: bool) -> None:
        if not self.path.exists() and (closed := segments(self.folder)):
            # The open file was moved away.
            lines = [{"segment": closed[-1].number + 1}, *lines]
        json_lines.append(self.path, lines, sync=sync)

    def _close_if_long(self) -> None:
        if self._lines >= (OPEN_LINES if store_at(self.path).appends else REWRITTEN_LINES):
            self._lines = close(self.path, self.folder, self._lines)
            self._unsynced = 0


def _read(checkpoint: Checkpoint, batch: int) -> ArchivedBatch | None:
    entry, commit = checkpoint.offset(batch), checkpoint.commit(batch)
    if entry is None:
        return None
    return ArchivedBatch(entry=entry, next_watermark_ms=commit.next_watermark_ms if commit else None)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (json_lines.DamagedLine, OSError) as error:
        raise damaged_line(file, getattr(error, "number", 0), error) from error


def _apply_lines(batches: dict[int, ArchivedBatch], file: Path, lines: Iterable[Any]) -> dict[int, ArchivedBatch]:
    """The batches after further lines; each file has the settings of its first batch."""
    conf: Mapping[str, str] = {}
    for number, line in enumerate(lines, start=1):
        try:
            if "void_after" in line:
                batches = {batch: old for batch, old in batches.items() if batch <= line["void_after"]}
            elif "segment" not in line:
                conf = line.get("conf", conf)
                entry = OffsetEntry(**{name: line[name] for name in _FACTS}, conf=conf)
                batches[entry.batch] = ArchivedBatch(entry=entry, next_watermark_ms=line["next_watermark_ms"])
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged_line(file, number, error) from error
    return batches


def _line(archived: ArchivedBatch, conf: Mapping[str, str]) -> dict[str, Any]:
    """The batch as plain data; `conf` is left out when it is that of the line before."""
    entry = archived.entry
    line: dict[str, Any] = {
        "batch": entry.batch,
        "watermark_ms": entry.watermark_ms,
        "timestamp_ms": entry.timestamp_ms,
        "next_watermark_ms": archived.next_watermark_ms,
        "offsets": dict(entry.offsets),
    }
    return line if entry.conf == conf else {**line, "conf": dict(entry.conf)}


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One closed file. first, last: the smallest and the greatest batch in it."""

    number: int
    first: int
    last: int
    file: Path

    def lines(self) -> Iterator[Any]:
        """Its lines, oldest first. Raises OSError, and DamagedLine."""
        number = 1
        try:
            with self.file.open("rb") as packed, gzip.open(packed, "rb") as opened:
                for line in opened:
                    yield json.loads(line)
                    number += 1
        except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise json_lines.DamagedLine(number, error) from error


def segments(folder: Path, before: int | None = None) -> list[Segment]:
    """The closed files, oldest first; with `before`, those with smaller numbers."""
    closed = []
    for file in folder.iterdir() if folder.is_dir() else ():
        if match := _NAME.fullmatch(file.name):
            number, first, last = map(int, match.groups())
            if before is None or number < before:
                closed.append(Segment(number=number, first=first, last=last, file=file))
    return sorted(closed, key=lambda segment: segment.number)


def needed(closed: list[Segment], since: int) -> list[Segment]:
    """The files with batches from `since` on, and all that follow: a later line may make earlier ones void."""
    at = next((at for at, segment in enumerate(closed) if segment.last >= since), len(closed))
    return closed[at:]


def close(file: Path, folder: Path, count: int) -> int:
    """Move all of the `count` lines of `file` but the newest into a closed file; return how many stay. Raises OSError.

    Until the last step the open file has all lines and a number that is not greater than that of the closed one, so
    that readers ignore the closed one.
    """
    with file.open("rb") as opened:
        head = _parse(file, 1, opened.readline())
        number = head.get("segment", 1)
        if "segment" not in head:
            opened.seek(0)
        for stale in segments(folder):
            if stale.number >= number:
                stale.file.unlink()
        folder.mkdir(exist_ok=True, mode=0o700)
        draft = folder / ".closing.headrace"
        batches = (sys.maxsize, -1)
        conf: Mapping[str, str] = {}
        whole = io.BytesIO()
        with gzip.GzipFile(draft.name, "wb", fileobj=whole, mtime=0) as packed:
            for at, line in enumerate(islice(opened, count - KEPT_OPEN), start=1):
                facts = _parse(file, at, line)
                if "batch" in facts:
                    conf = facts.get("conf", conf)
                    batches = (min(batches[0], facts["batch"]), max(batches[1], facts["batch"]))
                packed.write(line)
        rest = list(opened)
    draft.write_bytes(whole.getvalue())
    publish(draft, folder / f"{number:06d}-{min(batches)}-{max(batches)}.jsonl.gz")
    replace_file(file, json_lines.text_of([{"segment": number + 1}]) + b"".join(_with_conf(rest, conf)).decode())
    return len(rest) + 1


def _with_conf(lines: Sequence[bytes], conf: Mapping[str, str]) -> Iterable[bytes]:
    """The lines; the first one about a batch gets the settings, which a line before it held."""
    for at, line in enumerate(lines):
        try:
            facts = json.loads(line)
        except ValueError:
            continue  # Cut off, so the last one.
        if "batch" in facts:
            return chain(lines[:at], [json_lines.text_of([{"conf": dict(conf), **facts}]).encode()], lines[at + 1 :])
    return lines


def _parse(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(line)
        return entry if isinstance(entry, dict) else {}
    except ValueError as error:
        raise damaged_line(file, number, error) from error


def damaged_line(file: Path, line: int, error: Exception) -> CheckpointError:
    """What is raised for a part of the archive that cannot be read."""
    return CheckpointError(
        code="HR523",
        where=Where(file=str(file), line=line or None),
        what=f"the archive of batches cannot be read: {reason(error)}",
        fix="restore it from a backup; or move it away: the query runs on and archives what Spark still keeps, "
        "and what it read before can no longer be verified",
    )
