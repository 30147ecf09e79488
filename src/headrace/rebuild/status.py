"""How far a rebuild is, without a JVM."""

from __future__ import annotations

from headrace.checkpoint import Checkpoint
from headrace.errors import HeadraceError
from headrace.history import History
from headrace.model import Project
from headrace.model.layout import QueryLayout, history_file, rebuild_storage
from headrace.rebuild import shadow
from headrace.rebuild.values import RebuildStatus
from headrace.run.lag import lag
from headrace.run.rebuild_record import RebuildRecord


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
        rows=_rows(project, query),
        lag=waiting,
        notes=record.notes,
        report=record.report,
    )


def _rows(project: Project, query: str) -> int:
    file = history_file(rebuild_storage(project.storage, query))
    if not file.exists():
        return 0
    try:
        with History.open(file, read_only=True) as history:
            return sum(each.rows_total for each in history.statuses() if each.query == query)
    except HeadraceError:
        return 0
