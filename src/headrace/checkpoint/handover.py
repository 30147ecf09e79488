"""A checkpoint handed from one way of execution to another: batches, continuous processing, async progress tracking.

Source: MicroBatchExecution (OffsetMap) and ContinuousExecution (OffsetSeq) of Spark 4.2, each of which cannot read the
other's offsets; and the guide's "Asynchronous Progress Tracking", whose gaps batches alone do not start over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.entries import OffsetEntry
from headrace.checkpoint.gap import Gap, gap_before_newest
from headrace.checkpoint.logs import numbered
from headrace.checkpoint.rewrite import remove_file, replace_file
from headrace.errors import CheckpointError, Finding

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

    See `headrace.checkpoint.gap` for what they may be. Raises CheckpointError where that is not known.
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
