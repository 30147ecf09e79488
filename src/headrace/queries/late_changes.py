"""What a process writes of a change after it was stopped for longer than its lease, and others have changed the query.

A lock of the kernel is held by a process that is stopped; a lease is not, and no store refuses what comes late. The
process learns of it before its next step. What it has written by then is mended by whoever takes the lock.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.logs import Part, remove_file
from headrace.queries.changes import RebuildRecord, ResetRecord, RewindRecord
from headrace.queries.layout import (
    QueryLayout,
    generations,
    generations_and_names,
    generations_set_aside,
    rebuild_storage,
)
from headrace.storage.durable import end_move, move, remove_tree


def mend_rebuild(layout: QueryLayout) -> None:
    """Let a rebuild lie where its record says, or remove a discarded one's record. Raises OSError and HeadraceError.

    A swap that was rolled back may move the generation once more, or write its records where it had been. Where the
    generation names the table of the one before as its own, it was swapped, and its record is what came late.
    """
    record = RebuildRecord.of(layout)
    if record is None:
        return
    beside = replace(layout, storage=rebuild_storage(layout.storage, layout), generation=record.generation)
    place, former = (replace(layout, generation=number) for number in (record.generation, record.former))
    if record.phase in ("swapping", "rolling-back") and not beside.home.exists() and not place.home.exists():
        RebuildRecord.remove(layout)
    if record.phase in ("building", "abandoning") and place.home.exists():
        end_move(place.home)
        if not place.checkpoint.exists():
            remove_tree(place.home)
        elif not _has_run(beside) and place.sink.read_bytes() != former.sink.read_bytes():
            remove_tree(beside.home)
            move(place.home, beside.home)


def mend_moved(layout: QueryLayout) -> None:
    """Let the generation be in its place whose reset, or rewind, was undone. Raises OSError and HeadraceError.

    Its directory may be moved once more, without the record of a reset. A discard makes its record anew among what had
    been set aside; a start makes a directory for the generation that had followed. Each would be taken for the query's.
    """
    in_place, names = generations_and_names(layout.folder)
    aside = generations_set_aside(layout)
    if layout.before_rewind.home.parent.name in (names or ()):
        _mend_rewind(layout, max([*(each - 1 for each in in_place), *aside], default=0))
    for number in {*in_place, *aside}:
        there, following = replace(layout, generation=number), replace(layout, generation=number + 1)
        is_aside, is_followed = number in aside, number + 1 in in_place
        record = ResetRecord.of(there.set_aside) if is_aside else None
        if (number not in in_place and record is not None) or not (is_aside or is_followed):
            continue  # As a reset leaves it.
        if RebuildRecord.of(layout) is not None or ResetRecord.of(there) is not None or _has_run(following):
            continue
        if is_aside and record is None:
            end_move(there.home)  # This may have been cut off itself.
        if number not in in_place and _has_run(there.set_aside):
            move(there.set_aside.home, there.home)
        elif not _has_run(there):
            continue
        elif record is not None and record.way == "discard" and not _has_run(there.set_aside):
            remove_tree(there.set_aside.home)
        if is_followed:
            remove_tree(following.home)


def _mend_rewind(layout: QueryLayout, before: int) -> None:
    """Let a generation after `before` be in its place whose rewind was undone: its directory may be moved once more."""
    number = max(generations(layout.before_rewind.home.parent), default=0)
    there = replace(layout, generation=number)
    if number <= before:
        return
    if (record := RewindRecord.of(layout)) is not None:
        if record.way == "done" and record.generation == number:
            _remove_late_commits(Checkpoint(there.checkpoint), record)
        return
    end_move(there.before_rewind.home)  # This may have been cut off itself.
    if _has_run(there.before_rewind) and not _has_run(there):
        remove_tree(there.home)
        move(there.before_rewind.home, there.home)


def _remove_late_commits(checkpoint: Checkpoint, record: RewindRecord) -> None:
    """Remove the marks of batches that were rewound meanwhile; one that was made again since has its plan there."""
    newest = checkpoint.last_batch
    for batch in checkpoint.commit_numbers() if newest is not None else ():
        if max(newest or 0, record.batch) < batch <= record.newest:
            remove_file(checkpoint.root / Part.COMMITS / str(batch))


def _has_run(layout: QueryLayout) -> bool:
    """Whether a batch came in: a driver that was stopped may plan one where a generation had been."""
    checkpoint = Checkpoint(layout.checkpoint)
    return checkpoint.last_committed is not None and checkpoint.id is not None
