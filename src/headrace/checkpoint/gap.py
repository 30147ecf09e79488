"""The offsets before the newest ones where they are missing: what they were, or why that is not known.

Spark starts from the last two batches. Async progress tracking writes the offsets of some batches only, so that the
newest but one may never have been there; in every other checkpoint a file was lost, and the batch after it would take
its rows again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.archive import Archive
from headrace.checkpoint.directory import Checkpoint
from headrace.checkpoint.logs import numbered, text_of
from headrace.errors import CheckpointError, Finding, Where


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

    written_async: whether progress was written asynchronously; None where no record tells, as for a checkpoint of
    Headrace 0.1.0 whose sink may have done so.
    """
    offsets, commits = numbered(checkpoint.root / "offsets"), numbered(checkpoint.root / "commits")
    newest, committed = max(offsets, default=None), max(commits, default=None)
    if not newest or newest - 1 in offsets:
        return None
    missing = newest - 1
    file = offsets[newest].with_name(str(missing))
    known = _archived(archive, missing)
    if known is not None:
        what = f"the offsets of batch {missing} were missing, and are written again as the archive has them"
        note = Finding(code="HR513", where=Where(file=str(file)), what=what)
        return Gap(file=file, text=known, note=note)
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


def _archived(archive: Archive | None, batch: int) -> str | None:
    """The offsets of `batch` as the archive has them; an archive that cannot be read has none."""
    try:
        entry = archive.entries(batch).get(batch) if archive is not None else None
    except CheckpointError:
        return None
    return entry.format() if entry is not None else None
