"""A checkpoint handed from one way of execution to another, and the offsets before the newest where they are missing.

Source: MicroBatchExecution (OffsetMap) and ContinuousExecution (OffsetSeq) of Spark 4.2, each of which cannot read the
other's offsets; and the guide's "Asynchronous Progress Tracking", whose gaps batches alone do not start over.

Spark starts from the last two batches. Async progress tracking writes the offsets of some batches only, so that the
newest but one may never have been there; in every other checkpoint a file was lost, and the batch after it would take
its rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.checkpoint.archive import Archive
from headrace.checkpoint.directory import Checkpoint
from headrace.checkpoint.entries import OffsetEntry
from headrace.checkpoint.logs import numbered, remove_file, replace_file, text_of
from headrace.errors import CheckpointError, Finding, Where

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def move(checkpoint: Checkpoint, names: Sequence[str], *, continuous: bool) -> None:
    """Bring the offsets of the last two batches into the form that the next execution reads; `names`: of the sources.

    What is planned and not committed is taken back, as continuous processing does itself: it comes again. A checkpoint
    that is in the right form, or new, stays as it is. The newest committed batch is written last, as it tells whether
    all this is done: after a crash in between, the next start does the rest.
    """
    last = checkpoint.last_committed
    files = numbered(checkpoint.root / "offsets")
    newest = None if last is None else checkpoint.offset(last)
    if last is None or newest is None or newest.is_continuous is continuous:
        return
    for number in sorted((number for number in files if number > last), reverse=True):
        remove_file(files[number])
    for number in (last - 1, last):
        entry = checkpoint.offset(number) if number in files else None
        if entry is not None and entry.is_continuous is not continuous:
            replace_file(files[number], (_as_continuous if continuous else _as_batch)(entry, names).format())


def fill_gap(checkpoint: Checkpoint, archive: Archive | None, *, written_async: bool | None) -> Iterator[Finding]:
    """Write the offsets before the newest ones where they are missing, for a start that needs the last two batches.

    See `headrace.checkpoint.handover` for what they may be. Raises CheckpointError where that is not known.
    """
    gap = gap_before_newest(checkpoint, archive, written_async=written_async)
    if isinstance(gap, Finding):
        raise CheckpointError(gap)
    if isinstance(gap, Gap):
        replace_file(gap.file, gap.text)
        if gap.note is not None:
            yield gap.note


def _as_continuous(entry: OffsetEntry, names: Sequence[str]) -> OffsetEntry:
    return replace(entry, offsets={name: entry.offsets.get(name) for name in names}, version=1, is_continuous=True)


def _as_batch(entry: OffsetEntry, names: Sequence[str]) -> OffsetEntry:
    offsets = dict(zip(names, entry.offsets.values(), strict=True))
    return replace(entry, offsets=offsets, conf={EVOLUTION: "true"}, version=2, is_continuous=False)


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
        note = Finding(code="HR459", where=Where(file=str(file)), what=what)
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
