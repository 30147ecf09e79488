"""What the user's functions print and log in a Python worker, marked with the query and the batch that they serve.

A worker's output comes to the driver's standard error by way of the JVM, and nothing in it tells whose it is. The
worker knows: Spark gives each task the local properties of the query's thread.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from headrace.spark.jvm.session_conf import QUERY
from headrace.spark.jvm.stderr_filter import CHATTER, Destination, Said

# Spark's, in each batch.
BATCH = "streaming.sql.batchId"
_SHOWN = threading.local()


def serving() -> tuple[str, int] | None:
    """The query and the batch of the task that this process works on; None outside of a query of ours."""
    from pyspark import TaskContext

    task = TaskContext.get()
    query, batch = (task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)) if task else (None, None)
    return (query, int(batch)) if query and batch and batch.isdigit() else None


def install() -> None:
    """Mark what this process and its forks print and log from now on, in tasks of queries alone."""
    from pyspark import TaskContext

    out, err = _Marked(sys.stdout, "info"), _Marked(sys.stderr, "warning")
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    log, set_task = logging.Logger.callHandlers, TaskContext._setTaskContext

    def told(self: logging.Logger, record: logging.LogRecord) -> None:
        # A handler of our own would make basicConfig of the user's do nothing.
        if not getattr(_SHOWN, "alone", False) and (found := serving()):
            _tell(found, record.levelname.lower(), _message(record), "log")
        with _shown_alone():
            log(self, record)

    def end_of_task(cls: Any, task: Any) -> None:
        for stream in (out, err) if task is None else ():
            stream.end_line()
        set_task(task)

    logging.Logger.callHandlers = told  # type: ignore[method-assign]
    TaskContext._setTaskContext = classmethod(end_of_task)  # type: ignore[assignment]


@contextmanager
def _shown_alone() -> Iterator[None]:
    """What handlers of the user's write was logged already."""
    before = getattr(_SHOWN, "alone", False)
    _SHOWN.alone = True
    try:
        yield
    finally:
        _SHOWN.alone = before


class _Marked:
    """A standard stream whose whole lines carry the query and the batch."""

    def __init__(self, below: TextIO, level: str) -> None:
        self._below, self._level = below, level
        self._open: tuple[tuple[str, int], str] | None = None

    def write(self, text: str) -> int:
        found = serving() if isinstance(text, str) and not text.startswith(CHATTER) else None
        if found is None:
            return self._below.write(text)
        if self._open is not None and self._open[0] != found:
            self.end_line()
        *whole, rest = ((self._open[1] if self._open else "") + text).split("\n")
        for line in whole:
            self._line(found, line)
        self._open = (found, rest) if rest else None
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def end_line(self) -> None:
        """Tell what has no end of a line."""
        if self._open is not None:
            (found, rest), self._open = self._open, None
            self._line(found, rest)

    def _line(self, found: tuple[str, int], line: str) -> None:
        shown_alone = getattr(_SHOWN, "alone", False) or not line.strip()
        _tell(found, self._level, line, "stderr" if shown_alone else "both")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def _tell(found: tuple[str, int], level: str, message: str, to: Destination) -> None:
    said = Said(message=message, level=level, query=found[0], batch=found[1], to=to)
    # In one write, so that lines of several workers stay whole.
    os.write(2, said.line().encode())


def _message(record: logging.LogRecord) -> str:
    try:
        message = f"{record.name}: {record.getMessage()}"
    except Exception:  # a message that does not fit its arguments; the user's handlers say so
        message = f"{record.name}: {record.msg}"
    return message + ("\n" + logging.Formatter().formatException(record.exc_info) if record.exc_info else "")
