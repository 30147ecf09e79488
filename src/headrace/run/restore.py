"""A checkpoint that is behind its sink, brought there again from the sink's ledger, one batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.checkpoint import Checkpoint, PlannedBatch
from headrace.checkpoint.relocation import rewrite
from headrace.checkpoint.repartitions import Repartitions
from headrace.checkpoint.restore import Restorable, restorable, restore
from headrace.checkpoint.sources import source_of
from headrace.contract import SinkContext, SinkLedger
from headrace.errors import CheckpointError, Finding, Where
from headrace.model import Project, Query
from headrace.queries.application import application, known_application
from headrace.queries.layout import QueryLayout
from headrace.run.moved_project import source_homes
from headrace.storage.private import writing_to

# As many batches as a ledger keeps plans of.
KEPT = 101


def plan_lost_batch(project: Project, query: Query, layout: QueryLayout) -> Restorable | None:
    """Let the checkpoint plan the first batch that it has lost and the sink has; what was planned, or None.

    Spark makes only its newest planned batch again, and a state only from the one before. So the query runs that batch
    alone, its rows are skipped by the sink, and this is asked again. Raises PlatformError, SinkError.
    """
    sink, checkpoint = query.sink, Checkpoint(layout.checkpoint)
    try:
        if checkpoint.id is None:
            return None
        changes = Repartitions(layout.repartitions)
        run = SinkContext(
            query=query.name,
            generation=layout.generation,
            mode=query.mode,
            checkpoint=layout.checkpoint,
            empty_batches=changes.batches(checkpoint),
            **(application(project).facts() if known_application(project) is not None else {}),
        )
        ledger = sink.ledger
        last = None if ledger is None else ledger.last_batch(run)
        if ledger is None or last is None:
            return None
        found = _lost(checkpoint, ledger, run, last, changes.partitions(checkpoint))
    except CheckpointError:
        # The look at the whole checkpoint, which comes next, tells of it with all else.
        return None
    if found is None:
        return None
    try:
        with writing_to(layout.checkpoint, called="checkpoint"):
            restore(checkpoint, found)
            _bring_along(project, query, checkpoint, run.roots)
    except CheckpointError:
        # Earlier entries are lost too, which the ledger keeps no more.
        return None
    return found


def healed(query: Query, layout: QueryLayout, lost: Sequence[Restorable]) -> Iterator[Finding]:
    """What is said of the batches that were planned again, all together."""
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


def _bring_along(project: Project, query: Query, checkpoint: Checkpoint, roots: Sequence[Path]) -> None:
    """The ledger names files as they lay when the batch was written, perhaps before the project was moved."""
    here, homes = {project.root.absolute(), project.root.resolve()}, source_homes(project, query)
    for name in checkpoint.source_names():
        for former in (root for root in roots if root not in here):
            home = homes.get(source_of(name), "")
            rewrite(checkpoint.root / "sources" / name, str(former), str(project.root.absolute()), home)


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
                {number: PlannedBatch.loads(text) for number, text in ledger.planned(run, last - KEPT).items()}
            )
        return plans.get(batch)

    return restorable(checkpoint, last, kept, empty=run.empty_batches, partitions=partitions, roots=run.roots)
