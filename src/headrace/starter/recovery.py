"""Batches that a checkpoint has lost and the sink holds: planned again, in a new directory of the same generation.

The directory with the loss stays as it is until the record that names the new one as live. So a process that was
stopped in the midst, and continues late, fills a directory that is never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headrace.checkpoint import Checkpoint, PlannedBatch
from headrace.checkpoint.directory import Part
from headrace.checkpoint.relocation import rewrite
from headrace.checkpoint.restore import Restorable, restorable, restore, stores_of
from headrace.checkpoint.sources import source_of
from headrace.contract import SinkContext, SinkLedger
from headrace.errors import CheckpointError, Finding, HeadraceError, Where
from headrace.generations.facts import StartFacts
from headrace.generations.inspect_checkpoint import cut_off
from headrace.generations.log import (
    Directory,
    LogRecord,
    QueryLayout,
    append,
    copy_directory,
    enter_made,
    log_of,
    remove_unreachable,
)
from headrace.model import Query
from headrace.starter.moved_project import rename_schemas, source_homes
from headrace.storage.durable import files_below, link
from headrace.storage.private import writing_to

# As many batches as a ledger keeps plans of.
KEPT = 101


def restore_lost_batch(facts: StartFacts) -> Restorable | None:
    """Let the checkpoint plan the first batch that it has lost and the sink has; what was planned, or None.

    Spark makes only its newest planned batch again, and a state only from the one before. So the query runs that batch
    alone, its rows are skipped by the sink, and this is asked again. Raises LeaseLost, PlatformError, SinkError.
    """
    query, layout = facts.query, facts.layout
    try:
        lost, roots = _find_lost(facts)
    except CheckpointError:
        # The look at the whole checkpoint, which comes next, reports it with all else.
        return None
    # A change that was cut off has the directory elsewhere, or a part of it: the look reports that too.
    if lost is None or layout.head is None or any(cut_off(query, layout)):
        return None
    # A process that has written a record since these facts were read has the next number, and keeps this start from it.
    record = replace(log_of(layout) or LogRecord(), number=layout.head.number)
    own = Directory(generation=layout.generation, made=record.number + 1)
    record = append(layout.folder, query.name, replace(record, restoring=own))
    new = layout.at(own)
    try:
        with writing_to(layout.checkpoint, called="checkpoint"):
            _make(facts, new, lost, roots)
            enter_made(new, layout, record, lost.first)
    except CheckpointError:
        # Earlier entries are lost too, which the ledger keeps no more.
        return None
    record = append(layout.folder, query.name, record.with_restored(layout.place))
    with suppress(HeadraceError, OSError):
        remove_unreachable(layout.folder, record)
    return lost


def recovery_findings(query: Query, layout: QueryLayout, lost: Sequence[Restorable]) -> Iterator[Finding]:
    """Report the batches that were planned again, all together."""
    if not lost:
        return
    first, last, newest = lost[0].first, lost[-1].first, lost[-1].last
    batches = f"batch {first} is" if first == last else f"the batches {first} to {last} are"
    yield Finding(
        code="HR459",
        where=Where(file=str(layout.checkpoint)),
        what=f"the checkpoint of query '{query.name}' had lost entries of batches that are in the sink up to {newest}; "
        f"{batches} planned again as the sink's ledger has it",
        fix="nothing: the sink skips what it has, and the query continues",
    )


def _make(facts: StartFacts, new: QueryLayout, lost: Restorable, roots: Sequence[Path]) -> None:
    """Copy the directory, and bring the copy's checkpoint to the lost batch. Raises OSError, CheckpointError."""
    layout, checkpoint = facts.layout, Checkpoint(new.checkpoint)
    copy_directory(layout, new)
    for file in sorted(path for path in files_below(layout.checkpoint) if not path.name.endswith(".tmp")):
        link(file, new.checkpoint / file.relative_to(layout.checkpoint))
    rename_schemas(new, (str(layout.home.absolute()), str(new.home.absolute())))
    stores = stores_of(checkpoint.root, facts.repartitions.partitions(checkpoint)) if lost.stores else ()
    restore(checkpoint, replace(lost, stores=tuple(stores or ())))
    _rewrite_restored_paths(replace(facts, layout=new), roots)


def _rewrite_restored_paths(facts: StartFacts, roots: Sequence[Path]) -> None:
    """The ledger names files as they lay when the batch was written, perhaps before the project was moved."""
    root, homes = facts.project.root, source_homes(facts)
    here = {root.absolute(), root.resolve()}
    for name in facts.checkpoint.source_names():
        for former in (place for place in roots if place not in here):
            home = homes.get(source_of(name), "")
            rewrite(facts.checkpoint.root / Part.SOURCES / name, str(former), str(root.absolute()), home)


def _find_lost(facts: StartFacts) -> tuple[Restorable | None, Sequence[Path]]:
    """Return what the checkpoint has lost, and where the project has lain. Raises CheckpointError and SinkError."""
    checkpoint, changes, ledger = facts.checkpoint, facts.repartitions, facts.query.sink.ledger
    if checkpoint.id is None or ledger is None:
        return None, ()
    run = facts.sink_context(empty_batches=changes.batches(checkpoint))
    last = ledger.last_batch(run)
    return None if last is None else _lost(checkpoint, ledger, run, last, changes.partitions(checkpoint)), run.roots


def _lost(
    checkpoint: Checkpoint, ledger: SinkLedger, run: SinkContext, last: int, partitions: int | None
) -> Restorable | None:
    plans: dict[int, PlannedBatch] = {}
    asked: list[bool] = []

    def kept(batch: int) -> PlannedBatch | None:
        # Asked once, and only for a checkpoint that has lost something.
        if not asked:
            asked.append(True)
            plans.update(
                {number: PlannedBatch.loads(text) for number, text in ledger.read_plans(run, last - KEPT).items()}
            )
        return plans.get(batch)

    return restorable(checkpoint, last, kept, empty=run.empty_batches, partitions=partitions, roots=run.roots)
