"""What is wrong with a checkpoint, or worth knowing, without a JVM.

Spark starts from the last two batches. Async progress tracking writes the offsets of some batches only, so that the
newest but one may never have been there; in every other checkpoint a file was lost, and the batch after it would take
its rows again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.checkpoint.archive import Archive
from headrace.checkpoint.directory import (
    COMPACT,
    RESTORE,
    Checkpoint,
    CommitEntry,
    OffsetEntry,
    Part,
    body,
    broken_file,
    numbered_files,
    text_of,
    unreadable_directory,
)
from headrace.checkpoint.identity import log_offset, missing_entry
from headrace.checkpoint.state_files import WHOLE_BYTES, fault_of, state_problems
from headrace.errors import CheckpointError, Finding, Where


def list_problems(
    checkpoint: Checkpoint,
    archive: Archive | None = None,
    *,
    partitions: int | None = None,
    written_async: bool | None = None,
) -> Iterator[Finding]:
    """Yield everything that is wrong or worth knowing; never raises. Of one that is not there yet it is nothing.

    Of the state only what the next batch begins with is looked at, and of large files their size alone.
    partitions: how many the state has, where that was changed after Spark described it. archive, written_async: as of
    `gap_before_newest`.
    """
    root, gap = checkpoint.root, None
    try:
        if not root.exists():
            return
        offsets, commits = numbered_files(root / Part.OFFSETS), numbered_files(root / Part.COMMITS)
        numbered_files(root)
    except (CheckpointError, OSError) as error:
        yield from _findings(error, root)
        return
    yield from _identity(root, started=bool(offsets))
    yield from _unreadable(offsets, OffsetEntry.parse)
    yield from _unreadable(commits, CommitEntry.parse)
    with suppress(CheckpointError):  # What cannot be read is reported above.
        gap = gap_before_newest(checkpoint, archive, written_async=written_async)
    refused = [gap] if isinstance(gap, Finding) else []
    gaps = _gaps(root, offsets, commits)
    yield from (problem for problem in gaps if problem.where not in [finding.where for finding in refused])
    yield from _source_logs(root / Part.SOURCES, _log_ends(offsets))
    done = max(commits, default=None)
    following = max(max(offsets, default=0), -1 if done is None else done + 1)
    try:
        yield from state_problems(root, following, done, partitions)
    except (CheckpointError, OSError) as error:
        yield from _findings(error, root / Part.STATE)
    yield from refused


def _findings(error: CheckpointError | OSError, place: Path) -> tuple[Finding, ...]:
    return error.findings if isinstance(error, CheckpointError) else (unreadable_directory(place, error),)


def _identity(root: Path, *, started: bool) -> Iterator[Finding]:
    file = root / Part.ID_FILE
    try:
        text = text_of(file)
        has_id = text is not None and bool(json.loads(text)["id"])
    except (CheckpointError, ValueError, KeyError, TypeError):
        has_id = False
    if started and not has_id:
        yield Finding(
            code="HR503",
            where=Where(file=str(file)),
            what="the file with the query's id is missing or damaged, so Spark refuses to continue",
            fix='restore it from a backup, or write {"id":"..."} into it with the checkpoint id of the sink\'s ledger',
        )


def _unreadable(files: dict[int, Path], parse: Callable[[int, str, Path], Any]) -> Iterator[Finding]:
    for batch, file in files.items():
        try:
            text = text_of(file)
            if text is None:
                continue
            parse(batch, text, file)
            if (wrong := fault_of(file)) is not None:
                raise broken_file(file, wrong)
        except (CheckpointError, OSError) as error:
            yield from _findings(error, file)


def _gaps(root: Path, offsets: dict[int, Path], commits: dict[int, Path]) -> Iterator[Finding]:
    where = Where(file=str(root))
    for batch in sorted(set(range(min(offsets, default=0), max(offsets, default=-1))) - set(offsets)):
        yield Finding(
            code="HR504",
            where=Where(file=str(root / Part.OFFSETS / str(batch))),
            what=f"the offsets of batch {batch} are missing between those of its neighbours",
            fix="restore the file from a backup, if progress was not written in the background; verify takes it from "
            "the archive, and Spark itself needs those of the last two batches only",
        )
    if not offsets:
        if commits:
            yield _ahead(where, max(commits), None)
        return
    last, done = max(offsets), max(commits, default=None)
    if done is not None and done > last:
        yield _ahead(where, done, last)
    if done is None or done < last:
        behind = last - (-1 if done is None else done)
        yield Finding(
            code="HR505",
            where=where,
            what=f"batch {last} is planned and not committed: the next start runs it again with the same rows, and an "
            "exactly-once sink skips what it has"
            if behind == 1
            else f"the newest commit is {'missing' if done is None else done}, and batch {last} is planned",
        )
    for batch in sorted(set(range(max(min(offsets), min(commits, default=0)), done or 0)) - set(commits)):
        yield Finding(
            code="HR505",
            where=Where(file=str(root / Part.COMMITS / str(batch))),
            what=f"the commit of batch {batch} is missing, and later ones are there, of which Spark reads the newest",
        )


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The missing file, what it has to hold, and what the user should know of it."""

    file: Path
    text: str
    note: Finding | None = None


def gap_before_newest(
    checkpoint: Checkpoint, archive: Archive | None, *, written_async: bool | None
) -> Gap | Finding | None:
    """How the gap before the newest batch is filled, or the finding that refuses it; None without one.
    written_async: whether progress was written asynchronously; None where no record has it, as for a checkpoint of
    Headrace 0.1.0 whose sink may have done so.
    """
    offsets, commits = numbered_files(checkpoint.root / Part.OFFSETS), numbered_files(checkpoint.root / Part.COMMITS)
    newest, committed = max(offsets, default=None), max(commits, default=None)
    if not newest or newest - 1 in offsets:
        return None
    missing = newest - 1
    file = offsets[newest].with_name(str(missing))
    archived = _archived_text(archive, missing)
    if archived is not None:
        fault = f"the offsets of batch {missing} were missing, and are written again as the archive has them"
        note = Finding(code="HR459", where=Where(file=str(file)), what=fault)
        return Gap(file=file, text=archived, note=note)
    # Async progress writes a commit only where it wrote the offsets, and Spark refuses it for a query with state.
    lost = set(commits) - set(offsets) - set(range(min(offsets)))
    proven = written_async is not False and not lost and not checkpoint.is_stateful
    done = [number for number in offsets if committed is not None and number <= committed]
    done = [number for number in done if number < newest or newest == committed]
    if proven and done and (text := text_of(offsets[max(done)])) is not None:
        return Gap(file=file, text=text)
    return Finding(
        code="HR514",
        where=Where(file=str(file)),
        what=f"the offsets of batch {missing} are missing, so that it is not known which rows batch {newest} begins "
        "with: Spark refuses the checkpoint",
        fix="restore the file, or the whole storage directory, from a backup; or reset the query (headrace reset "
        "QUERY)",
    )


def _archived_text(archive: Archive | None, batch: int) -> str | None:
    """The offsets of `batch` as the archive has them; an archive that cannot be read has none."""
    try:
        entry = archive.entries(batch).get(batch) if archive is not None else None
    except CheckpointError:
        return None
    return entry.format() if entry is not None else None


def _ahead(where: Where, done: int, last: int | None) -> Finding:
    return Finding(
        code="HR514",
        where=where,
        what=f"batch {done} is committed, but "
        + ("no batch has offsets" if last is None else f"the newest offsets are of batch {last}")
        + ", so Spark would give used numbers to new rows",
        fix=RESTORE,
    )


def _log_ends(offsets: dict[int, Path]) -> dict[str, int]:
    """Up to which entry of its own log each source was read, where its offsets are numbers of such entries."""
    ends: dict[str, int] = {}
    for batch, file in sorted(offsets.items(), reverse=True)[:2]:
        try:
            entry = OffsetEntry.parse(batch, text_of(file) or "", file)
            for name, offset in entry.offsets.items():
                if (end := log_offset(offset)) is not None:
                    ends.setdefault(name, end)
        except CheckpointError:
            continue
    return ends


def _source_logs(folder: Path, ends: dict[str, int]) -> Iterator[Finding]:
    try:
        logs = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
    except OSError as error:
        yield from _findings(error, folder)
        return
    for name in sorted(logs | {name for name, end in ends.items() if end >= 0}):
        log = folder / name
        try:
            files = numbered_files(log)
        except CheckpointError as error:
            yield from error.findings
            continue
        compacted = max((number for number, file in files.items() if file.name.endswith(COMPACT)), default=0)
        needed = {number: file for number, file in files.items() if number >= compacted}
        yield from _unreadable(needed, _file_entries if name in ends else lambda _, text, file: body(file, text))
        through = max(ends.get(name, -1), max(files, default=-1))
        missing = sorted(set(range(compacted, through + 1)) - set(files))
        if missing:
            yield missing_entry(log, missing[0], len(missing) - 1)


def _file_entries(_: int, text: str, file: Path) -> None:
    """The file source writes a line of JSON for each file."""
    _, lines = body(file, text)
    for line in lines if len(text) <= WHOLE_BYTES else ():
        try:
            if line and "path" not in json.loads(line):
                raise broken_file(file, f"a line names no file: {line[:40]!r}")
        except (ValueError, TypeError) as error:
            raise broken_file(file, f"a line is not JSON: {line[:40]!r}") from error
