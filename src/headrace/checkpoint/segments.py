"""The closed part of an archive: compressed files of its lines, each with the batches that it tells of in its name."""

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
from typing import IO, Any

from headrace.errors import CheckpointError, Finding, Where, reason
from headrace.storage.durable import publish, replace_file
from headrace.storage.json_lines import DamagedLine, text_of
from headrace.storage.remote import RemotePath

OPEN_LINES = 10_000
"""With so many lines the open file is closed. A start reads it whole, which takes a tenth of a second."""
OPEN_REMOTE_LINES = 1_000
"""Beyond this machine each line that is added puts the open file anew."""
KEPT_OPEN = 200
"""Twice what Spark keeps of its own: what a start compares with the checkpoint is in the open file."""
_NAME = re.compile(r"(\d{6,})-(\d+)-(\d+)\.jsonl\.gz")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One closed file. first, last: the smallest and the greatest batch that it tells of."""

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
            raise DamagedLine(number, error) from error


def segments(folder: Path, before: int | None = None) -> list[Segment]:
    """The closed files, oldest first; with `before`, those with smaller numbers."""
    found = []
    for file in folder.iterdir() if folder.is_dir() else ():
        if match := _NAME.fullmatch(file.name):
            number, first, last = map(int, match.groups())
            if before is None or number < before:
                found.append(Segment(number=number, first=first, last=last, file=file))
    return sorted(found, key=lambda each: each.number)


def needed(closed: list[Segment], since: int) -> list[Segment]:
    """Those that tell of a batch from `since` on, with all that follow: these may make void what is before them."""
    at = next((at for at, each in enumerate(closed) if each.last >= since), len(closed))
    return closed[at:]


def lines_of(file: Path) -> int:
    """How many lines a file has; none where there is no file. Raises OSError."""
    try:
        with file.open("rb") as opened:
            return sum(block.count(b"\n") for block in iter(lambda: opened.read(1 << 20), b""))
    except FileNotFoundError:
        return 0


def close(file: Path, folder: Path, count: int) -> int:
    """Bring all of the `count` lines of `file` but the newest into a closed file; how many stay. Raises OSError.

    Until the last step the open file has all lines and a number that is not greater than that of the closed one, which
    is so much as not there.
    """
    with file.open("rb") as opened:
        head = _parsed(file, 1, opened.readline())
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
        with _written(draft) as whole, gzip.GzipFile(draft.name, "wb", fileobj=whole, mtime=0) as packed:
            for at, line in enumerate(islice(opened, count - KEPT_OPEN), start=1):
                facts = _parsed(file, at, line)
                if "batch" in facts:
                    conf = facts.get("conf", conf)
                    batches = (min(batches[0], facts["batch"]), max(batches[1], facts["batch"]))
                packed.write(line)
        kept = list(opened)
    publish(draft, folder / f"{number:06d}-{min(batches)}-{max(batches)}.jsonl.gz")
    replace_file(file, text_of([{"segment": number + 1}]) + b"".join(_with_conf(kept, conf)).decode())
    return len(kept) + 1


@contextmanager
def _written(file: Path) -> Iterator[IO[bytes]]:
    """A file to write into, which a store beyond this machine is given as a whole."""
    if isinstance(file, RemotePath):
        with io.BytesIO() as content:
            yield content
            file.write_bytes(content.getvalue())
    else:
        with file.open("wb") as opened:
            yield opened


def _with_conf(lines: Sequence[bytes], conf: Mapping[str, str]) -> Iterable[bytes]:
    """The lines, of which the first about a batch tells its settings, which the line before has told."""
    for at, line in enumerate(lines):
        try:
            facts = json.loads(line)
        except ValueError:
            continue  # Cut off, so the last one.
        if "batch" in facts:
            return chain(lines[:at], [text_of([{"conf": dict(conf), **facts}]).encode()], lines[at + 1 :])
    return lines


def _parsed(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
        return found if isinstance(found, dict) else {}
    except ValueError as error:
        raise damaged(file, number, error) from error


def damaged(file: Path, line: int, error: Exception) -> CheckpointError:
    """What is raised for a part of the archive that cannot be read."""
    return CheckpointError(
        Finding(
            code="HR523",
            where=Where(file=str(file), line=line or None),
            what=f"the archive of batches cannot be read: {reason(error)}",
            fix="restore it from a backup; or move it away: the query runs on and archives what Spark still keeps, "
            "and what it read before can no longer be verified",
        )
    )
