"""What happens in a run as plain data: the lines of `run --json` and of `status --follow --json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.errors import Finding
from headrace.model import Query
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord
from headrace.run.result import HeldState, Outcome
from headrace.spark.batch_work import BatchWork

Write: TypeAlias = Callable[[str, Mapping[str, Any]], None]


class EventLines:
    """A reporter that gives each event by its name with its facts to `write`."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def starting(self, query: Query) -> None:
        return None

    def started(self, query: Query, layout: QueryLayout) -> None:
        self._write("started", {"query": query.name, "generation": layout.generation, "trigger": str(query.trigger)})

    def working(self, query: str, work: BatchWork) -> None:
        return None

    def stopping(self, *, now: bool) -> None:
        self._write("stopping", {"now": now})

    def progressed(self, record: BatchRecord) -> None:
        self._write("batch", record.as_dict())

    def held(self, query: str, state: HeldState, why: str) -> None:
        self._write("held", {"query": query, "state": state, "why": why})

    def ended(self, outcome: Outcome) -> None:
        self._write("ended", outcome.as_dict())

    def note(self, finding: Finding) -> None:
        self._write("note", {"finding": finding.as_dict()})
