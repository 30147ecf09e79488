"""How a query stands, from its storage alone: no history, no JVM, from any machine that reaches the storage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckpointError, Finding
from headrace.model import Project, Query
from headrace.queries import driver_lock
from headrace.queries.home import layout_of

_TIMES = ("committed_at", "watermark")


@dataclass(frozen=True, kw_only=True)
class StoredStatus:
    """What the checkpoint and the lock tell of a query.

    driver: the process that runs it, if one does. committed_at: when its newest batch was committed.
    watermark: that of the next batch. fault: why nothing more can be told.
    """

    query: str
    generation: int
    driver: str | None = None
    planned: int | None = None
    committed: int | None = None
    committed_at: datetime | None = None
    watermark: datetime | None = None
    fault: Finding | None = None

    def as_dict(self) -> dict[str, Any]:
        """The status as plain data, for `--json`."""
        times = {name: None if (at := getattr(self, name)) is None else at.isoformat() for name in _TIMES}
        return {**asdict(self), **times, "fault": None if self.fault is None else self.fault.as_dict()}


def stored_status(project: Project, query: Query) -> StoredStatus:
    """The status of one query; raises PlatformError where the storage does not answer."""
    layout = layout_of(project, query)
    checkpoint, driver = Checkpoint(layout.checkpoint), driver_lock.seen(project, query)
    try:
        committed = checkpoint.last_committed
        commit = None if committed is None else checkpoint.commit(committed)
        return StoredStatus(
            query=query.name,
            generation=layout.generation,
            driver=driver,
            planned=checkpoint.last_batch,
            committed=committed,
            committed_at=None if committed is None else _modified(checkpoint, committed),
            watermark=None if commit is None or commit.next_watermark_ms <= 0 else _instant(commit.next_watermark_ms),
        )
    except CheckpointError as error:
        return StoredStatus(query=query.name, generation=layout.generation, driver=driver, fault=error.findings[0])


def _modified(checkpoint: Checkpoint, batch: int) -> datetime | None:
    try:
        return _instant(int((checkpoint.root / "commits" / str(batch)).stat().st_mtime * 1000))
    except FileNotFoundError:
        return None


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
