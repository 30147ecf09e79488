"""A checkpoint that is behind its sink, brought there again from the sink's ledger, one batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.checkpoint import Checkpoint, PlannedBatch
from headrace.checkpoint.relocation import rewrite
from headrace.checkpoint.repartitions import Repartitions
from headrace.checkpoint.restore import Restorable, restorable, restore
from headrace.contract import Sink, SinkContext
from headrace.errors import CheckpointError, Finding, Where
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.run.application import application, known_application
from headrace.storage.faults import writing_to

# As many batches as a ledger keeps plans of.
KEPT = 101


def plan_lost_batch(project: Project, query: Query, layout: QueryLayout) -> Finding | None:
    """Let the checkpoint plan the first batch that it has lost and the sink has; what was done, or None.

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
        last = sink.last_batch(run)
        found = None if last is None else _lost(checkpoint, sink, run, last, changes.partitions(checkpoint))
    except CheckpointError:
        # The look at the whole checkpoint, which comes next, tells of it with all else.
        return None
    if found is None:
        return None
    try:
        with writing_to(layout.checkpoint, called="checkpoint"):
            restore(checkpoint, found)
            _bring_along(project, checkpoint, run.roots)
    except CheckpointError:
        # Earlier entries are lost too, which the ledger keeps no more.
        return None
    return Finding(
        code="HR459",
        where=Where(file=str(layout.checkpoint)),
        what=f"the checkpoint of query '{query.name}' had lost entries of batches that are in the sink up to "
        f"{found.last}; batch {found.first} is planned again as the sink's ledger has it",
        fix="nothing: the sink skips what it has, and the query continues",
    )


def _bring_along(project: Project, checkpoint: Checkpoint, roots: Sequence[Path]) -> None:
    """The ledger names files as they lay when the batch was written, perhaps before the project was moved."""
    here = {project.root.absolute(), project.root.resolve()}
    for name in checkpoint.source_names():
        for former in (root for root in roots if root not in here):
            rewrite(checkpoint.root / "sources" / name, str(former), str(project.root.absolute()))


def _lost(checkpoint: Checkpoint, sink: Sink, run: SinkContext, last: int, partitions: int | None) -> Restorable | None:
    plans: dict[int, PlannedBatch] = {}
    asked: list[bool] = []

    def kept(batch: int) -> PlannedBatch | None:
        # Asked once, and only for a checkpoint that has lost something.
        if not asked:
            asked.append(True)
            plans.update({number: PlannedBatch.loads(text) for number, text in sink.planned(run, last - KEPT).items()})
        return plans.get(batch)

    return restorable(checkpoint, last, kept, empty=run.empty_batches, partitions=partitions, roots=run.roots)
