"""A running query with what the supervisor keeps of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headrace.checkpoint.archive import Archive
from headrace.contract import Backlog
from headrace.model import Query, Trigger
from headrace.progress import BatchRecord
from headrace.run.ailments import Ailments
from headrace.run.halt import Halt
from headrace.run.quarantine import Quarantine
from headrace.run.refresh import Refresher
from headrace.run.start import Running

HEALTH_BATCHES = 20


@dataclass(kw_only=True)
class Watched:
    """A running query with what the supervisor keeps of it.

    finishing: it makes one batch again, with the tables that the batch was begun with, before it goes on with others.
    halt: it is being halted, to go on with others.
    """

    running: Running
    trigger: Trigger
    history_run: int | None
    archive: Archive | None
    quarantine: Quarantine | None
    ailments: Ailments
    batches: int = 0
    rows: int = 0
    last_batch: int | None = None
    batch_when_asked: int | None = None
    asked: bool = False
    backlog: Backlog | None = None
    backlog_at: float = field(default=0.0)
    finishing: bool = False
    halt: Halt | None = None
    refresher: Refresher | None = None
    recent: deque[BatchRecord] = field(default_factory=lambda: deque(maxlen=HEALTH_BATCHES))
    ills: frozenset[str] = frozenset()

    @property
    def query(self) -> Query:
        return self.running.query

    @property
    def ends(self) -> bool:
        return self.trigger.ends
