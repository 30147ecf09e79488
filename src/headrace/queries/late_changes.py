"""What a process writes of a change after it was stopped for longer than its lease, and others have changed the query.

A lock of the kernel is held by a process that is stopped; a lease is not, and no store refuses what comes late. The
process learns of it before its next step. What it has written by then is mended by whoever takes the lock.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.checkpoint import Checkpoint
from headrace.queries.changes import RebuildRecord, ResetRecord
from headrace.queries.layout import QueryLayout, generations, generations_set_aside, rebuild_storage
from headrace.storage.durable import end_move, move, remove_tree


def mend_rebuild(layout: QueryLayout) -> None:
    """Remove the record of a swap whose rebuild was discarded. Raises OSError and HeadraceError."""
    record = RebuildRecord.of(layout)
    if record is not None and record.phase in ("swapping", "rolling-back"):
        beside = QueryLayout(rebuild_storage(layout.storage, layout.query), layout.query, record.generation)
        if not beside.home.exists() and not replace(layout, generation=record.generation).home.exists():
            RebuildRecord.remove(layout)


def mend_reset(layout: QueryLayout) -> None:
    """Let the generation be in its place whose reset was undone. Raises OSError and HeadraceError.

    Its directory may be moved once more, without the record of a reset. A discard makes its record anew among what had
    been set aside; a start makes a directory for the generation that had followed. Each would be taken for the query's.
    """
    in_place, aside = generations(layout.home.parent), generations_set_aside(layout.storage, layout.query)
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


def _has_run(layout: QueryLayout) -> bool:
    """Whether a batch came in: a driver that was stopped may plan one where a generation had been."""
    checkpoint = Checkpoint(layout.checkpoint)
    return checkpoint.last_committed is not None and checkpoint.id is not None
