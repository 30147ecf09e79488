"""JSON lines on stdout, one for each thing that happens, and the result as the last."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.cli.output import json_text
from headrace.run.event_lines import EventLines

if TYPE_CHECKING:
    from headrace.run.result import RunResult


class JsonLines(EventLines):
    """Every line has `event`: started, batch, held, stopping, ended, note or result.

    A reader that goes away stops the run gently.
    """

    def __init__(self) -> None:
        super().__init__(self._say)
        self._reader_gone = False

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def summary(self, result: RunResult) -> None:
        outcomes = [outcome.as_dict() for outcome in result.outcomes]
        self._say("result", {"exit_code": result.exit_code, "outcomes": outcomes})

    def _say(self, event: str, facts: Mapping[str, Any]) -> None:
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
