"""How far a rebuild is, without a JVM."""

from __future__ import annotations

from contextlib import suppress

from headrace.change.rebuild import shadow
from headrace.change.rebuild.values import RebuildStatus
from headrace.checkpoint import Checkpoint
from headrace.errors import HeadraceError
from headrace.model import Project
from headrace.observe.history import History
from headrace.observe.lag import lag
from headrace.queries.changes import RebuildRecord
from headrace.queries.layout import QueryLayout, history_file


def rebuild_status(project: Project, query: str) -> RebuildStatus | None:
    """How far the rebuild of `query` is; None without one. Raises CheckpointError for a record that is damaged."""
    record = RebuildRecord.of(project.storage, query)
    if record is None:
        return None
    declared = project.queries[query]
    beside = shadow.layout_beside(project, declared, record)
    layout = beside if beside.home.exists() else QueryLayout(project.storage, query, record.generation)
    committed, waiting = None, None
    try:
        committed = Checkpoint(layout.checkpoint).last_committed
        waiting = lag(project, declared, layout) if record.phase == "building" else None
    except HeadraceError:
        pass  # What is wrong with it is told when the rebuild continues.
    return RebuildStatus(
        query=query,
        phase=record.phase,
        former=record.former,
        generation=record.generation,
        begun=record.at,
        batches=0 if committed is None else committed + 1,
        rows=_rows(project, query, record.generation),
        lag=waiting,
        notes=record.notes,
        report=record.report,
    )


def _rows(project: Project, query: str, generation: int) -> int:
    """What the rebuilt generation has read, by its own history, or after the swap by that of the project."""
    found = [0]
    for storage in (shadow.local_storage(project, query), project.local_storage):
        if history_file(storage).exists():
            with suppress(HeadraceError), History.open(history_file(storage), read_only=True) as history:
                known = (each for each in history.statuses() if (each.query, each.generation) == (query, generation))
                found += [each.rows_total for each in known]
    return max(found)
