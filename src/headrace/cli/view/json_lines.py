"""JSON lines on stdout, one for each thing that happens, and the result as the last."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.cli.json_stdout import drop
from headrace.cli.output import say_json
from headrace.cli.view.view import RunView
from headrace.observe.observers import EventLines

if TYPE_CHECKING:
    from headrace.observe.board import RunResult


class JsonLines(EventLines, RunView):
    """Every line has `event`: started, state, batch, stopping, ended, note or result.

    A reader that goes away stops the run gently.
    """

    def __init__(self) -> None:
        super().__init__(self._say)
        self._reader_gone = False

    def summary(self, result: RunResult) -> None:
        outcomes = [outcome.as_dict() for outcome in result.outcomes]
        self._say("result", {"exit_code": result.exit_code, "outcomes": outcomes})

    def _say(self, event: str, facts: Mapping[str, Any]) -> None:
        if self._reader_gone:
            return
        try:
            say_json({"event": event, **facts})
        except BrokenPipeError:
            self._reader_gone = True
            drop()
            os.kill(os.getpid(), signal.SIGTERM)
