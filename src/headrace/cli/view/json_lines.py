"""JSON lines on stdout, one for each thing that happens, and the result as the last."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.cli.output import json_text
from headrace.errors import Finding
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord

if TYPE_CHECKING:
    from headrace.model import Query
    from headrace.run.result import Outcome, RunResult
    from headrace.spark.batch_work import BatchWork


class JsonLines:
    """Every line has `event`: started, batch, stopping, ended, note or result.

    A reader that goes away stops the run gently.
    """

    def __init__(self) -> None:
        self._reader_gone = False

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

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

    def ended(self, outcome: Outcome) -> None:
        self._write("ended", outcome.as_dict())

    def note(self, finding: Finding) -> None:
        self._write("note", {"finding": finding.as_dict()})

    def summary(self, result: RunResult) -> None:
        outcomes = [outcome.as_dict() for outcome in result.outcomes]
        self._write("result", {"exit_code": result.exit_code, "outcomes": outcomes})

    def _write(self, event: str, facts: Mapping[str, Any]) -> None:
        if self._reader_gone:
            return
        try:
            sys.stdout.write(json_text({"event": event, **facts}) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self._reader_gone = True
            # What cannot be written any more must not be tried again when Python flushes at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.kill(os.getpid(), signal.SIGTERM)
