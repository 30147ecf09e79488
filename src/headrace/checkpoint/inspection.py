"""What is wrong with a checkpoint directory, reported all at once and without raising."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace.checkpoint.entries import CommitEntry, OffsetEntry
from headrace.checkpoint.logs import COMPACT, body, broken, numbered, text_of
from headrace.checkpoint.state_files import WHOLE_BYTES, fault_of, state_problems
from headrace.errors import CheckpointError, Finding, Where


def inspect(root: Path, *, partitions: int | None = None) -> Iterator[Finding]:
    """The findings about a checkpoint; none about one that is not there yet.

    Of the state only what the next batch begins with is looked at, and of large files their size alone.
    """
    try:
        if not root.exists():
            return
        offsets, commits = numbered(root / "offsets"), numbered(root / "commits")
        numbered(root)
    except (CheckpointError, OSError) as error:
        yield from _found(error, root)
        return
    yield from _identity(root, started=bool(offsets))
    yield from _unreadable(offsets, OffsetEntry.parse)
    yield from _unreadable(commits, CommitEntry.parse)
    yield from _gaps(root, offsets, commits)
    yield from _source_logs(root / "sources", _log_ends(offsets))
    done = max(commits, default=None)
    following = max(max(offsets, default=0), -1 if done is None else done + 1)
    try:
        yield from state_problems(root, following, done, partitions)
    except (CheckpointError, OSError) as error:
        yield from _found(error, root / "state")


def _found(error: CheckpointError | OSError, where: Path) -> tuple[Finding, ...]:
    if isinstance(error, CheckpointError):
        return error.findings
    return (
        Finding(
            code="HR540",
            where=Where(file=str(where)),
            what=f"the directory cannot be read: {error.strerror}",
            fix="give the user that runs the query the right to read and write the storage directory",
        ),
    )


def _identity(root: Path, *, started: bool) -> Iterator[Finding]:
    file = root / "metadata"
    try:
        text = text_of(file)
        known = text is not None and bool(json.loads(text)["id"])
    except (CheckpointError, ValueError, KeyError, TypeError):
        known = False
    if started and not known:
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
                raise broken(file, wrong)
        except CheckpointError as error:
            yield from error.findings
        except OSError as error:
            yield from _found(error, file)


def _gaps(root: Path, offsets: dict[int, Path], commits: dict[int, Path]) -> Iterator[Finding]:
    where = Where(file=str(root))
    for batch in sorted(set(range(min(offsets, default=0), max(offsets, default=-1))) - set(offsets)):
        yield Finding(
            code="HR504",
            where=Where(file=str(root / "offsets" / str(batch))),
            what=f"the offsets of batch {batch} are missing between those of its neighbours",
            fix="restore the file from a backup, if progress was not written beside the batches; verify takes it from "
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
            code="HR506",
            where=Where(file=str(root / "commits" / str(batch))),
            what=f"the commit of batch {batch} is missing, and later ones are there, of which Spark reads the newest",
        )


def _ahead(where: Where, done: int, last: int | None) -> Finding:
    return Finding(
        code="HR514",
        where=where,
        what=f"batch {done} is committed, but "
        + ("no batch has offsets" if last is None else f"the newest offsets are of batch {last}")
        + ", so Spark would give used numbers to new rows",
        fix="restore the offsets from a backup, or reset the query (headrace reset QUERY)",
    )


def _log_ends(offsets: dict[int, Path]) -> dict[str, int]:
    """Up to which entry of its own log each source was read, where its offsets are numbers of such entries."""
    ends: dict[str, int] = {}
    for batch, file in sorted(offsets.items(), reverse=True)[:2]:
        try:
            entry = OffsetEntry.parse(batch, text_of(file) or "", file)
            for name, offset in entry.offsets.items():
                facts = json.loads(offset) if offset is not None and offset.startswith("{") else None
                if isinstance(facts, dict) and isinstance(facts.get("logOffset"), int):
                    ends.setdefault(name, facts["logOffset"])
        except (CheckpointError, ValueError):
            continue
    return ends


def _source_logs(folder: Path, ends: dict[str, int]) -> Iterator[Finding]:
    try:
        logs = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
    except OSError as error:
        yield from _found(error, folder)
        return
    for name in sorted(logs | {name for name, end in ends.items() if end >= 0}):
        log = folder / name
        try:
            files = numbered(log)
        except CheckpointError as error:
            yield from error.findings
            continue
        compacted = max((number for number, file in files.items() if file.name.endswith(COMPACT)), default=0)
        needed = {number: file for number, file in files.items() if number >= compacted}
        yield from _unreadable(needed, _file_entries if name in ends else _source_entry)
        through = max(ends.get(name, -1), max(files, default=-1))
        missing = sorted(set(range(compacted, through + 1)) - set(files))
        if missing:
            yield Finding(
                code="HR509",
                where=Where(file=str(log / str(missing[0]))),
                what=f"the log of source '{name}' lacks entry {missing[0]}"
                + (f" and {len(missing) - 1} more" if missing[1:] else "")
                + ": Spark cannot know which files it has read",
                fix="restore the file from a backup, or reset the query (headrace reset QUERY)",
            )


def _source_entry(_: int, text: str, file: Path) -> None:
    body(file, text, versions=(1,))


def _file_entries(_: int, text: str, file: Path) -> None:
    """The file source writes a line of JSON for each file."""
    _, lines = body(file, text, versions=(1,))
    if len(text) > WHOLE_BYTES:
        return
    for line in lines:
        try:
            if line and "path" not in json.loads(line):
                raise broken(file, f"a line names no file: {line[:40]!r}")
        except (ValueError, TypeError) as error:
            raise broken(file, f"a line is no JSON: {line[:40]!r}") from error
