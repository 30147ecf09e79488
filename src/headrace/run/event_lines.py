"""What happens in a run as plain data: the lines of `run --json` and of `status --follow --json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.contract import BatchRecord, Observer, Outcome, QueryStart, QueryState
from headrace.errors import Finding

Write: TypeAlias = Callable[[str, Mapping[str, Any]], None]


class EventLines(Observer):
    """Gives each event by its name with its facts to `write`."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def started(self, start: QueryStart) -> None:
        self._write("started", {"query": start.query, "generation": start.generation, "trigger": start.trigger})

    def stopping(self, *, now: bool) -> None:
        self._write("stopping", {"now": now})

    def progressed(self, record: BatchRecord) -> None:
        self._write("batch", record.as_dict())

    def changed(self, state: QueryState) -> None:
        self._write("state", state.as_dict())

    def ended(self, outcome: Outcome) -> None:
        self._write("ended", outcome.as_dict())

    def note(self, finding: Finding) -> None:
        self._write("note", {"finding": finding.as_dict()})
