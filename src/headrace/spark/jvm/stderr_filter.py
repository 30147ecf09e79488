"""Standard error of Spark and its Python workers: lines that carry facts, and lines without any.

A worker's output comes to the driver's standard error by way of the JVM, and nothing in it names its query. The
worker knows: Spark gives each task the local properties of the query's thread. So this module, run as Spark's daemon of
Python workers, which are forks of it, marks what the user's functions print and log with the query and the batch.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TextIO, TypeAlias, cast

from headrace.redaction import redacted
from headrace.spark.jvm.session_conf import QUERY

# What PySpark's worker prints when a query with transformWithState starts, each line with an empty one after it.
CHATTER = (
    "Starting Streaming TransformWithStateInPandas Python worker",
    "Streaming TransformWithStateInPandas Python worker",
)
_CHATTER = tuple(text.encode() for text in CHATTER)
_NAME_OF_ERRORS = b"pyspark.errors.exceptions.base."
# A Python worker that Spark no longer listens to, as at the end of a task that wants no more rows, and its trace.
_FLUSH = b"PySpark daemon failed to flush the output to the worker process:"
_TRACE = b"Traceback (most recent call last):"
_UNHEARD = (b"BrokenPipeError", b"ConnectionResetError", _NAME_OF_ERRORS + b"PySparkRuntimeError: [CANNOT_OPEN_SOCKET]")
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
# Where code lies that is not the user's: in PySpark, in Python's own library, in what is run as `-m`.
_LIBRARY = re.compile(
    rb'  File "(?:<frozen |[^"]*(?:(?:-packages|/python|\.zip)/pyspark/|/lib/python3\.\d+/(?!(?:site|dist)-packages/)))'
)
# Begins such a line, as log4j2.properties and Python workers write it; nothing that is read by people contains it.
MARK = "\x1e"
_MARK = MARK.encode()
# These get each line as well, as the log of a run does.
taps: list[Callable[[SparkLine], None]] = []
# Spark's, in each batch.
BATCH = "streaming.sql.batchId"
_SHOWN = threading.local()
Destination: TypeAlias = Literal["log", "stderr", "both"]


def informative_lines(lines: Iterable[bytes], starts: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the lines with facts: not those that begin as `starts`, PySpark's chatter, traces of a closed pipe.

    A worker that Spark listens to no more, or did not wait for, ends with a trace that says so; the query's own failure
    says why.
    """
    blank_too, held = False, list[bytes]()
    for line in lines:
        if held:
            held.append(line)
            if line.strip() and not line.startswith((b" ", _TRACE)):
                blank_too = _is_of_abandoned_worker(held)
                if not blank_too:
                    yield from held
                held = []
            continue
        if line.startswith((_FLUSH, _TRACE)):
            held = [line]
        elif line.startswith(_CHATTER) or (blank_too and line.startswith(_CHAINED)):
            blank_too = True
        elif not line.startswith(starts) and not (blank_too and not line.strip()):
            blank_too = False
            yield line
    yield from held


def _is_of_abandoned_worker(trace: list[bytes]) -> bool:
    """Whether a trace is that of a worker that Spark did not listen to; code of the user's may lose other sockets."""
    calls = (line for line in trace if line.startswith(b'  File "'))
    return trace[-1].startswith(_UNHEARD) and (trace[0].startswith(_FLUSH) or all(map(_LIBRARY.match, calls)))


@contextmanager
def drop_lines(*starts: bytes) -> Iterator[None]:
    """Let processes that are started in this block write to standard error, but for lines that begin so.

    What they write later, after the block, goes the same way until they end.
    """
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)

    def pass_on() -> None:
        with open(reading, "rb") as lines, open(kept, "wb", buffering=0) as out:
            for line in informative_lines(lines, starts):
                text = line.decode("utf-8", "surrogateescape")
                parsed = SparkLine.read(text)
                for tap in list(taps) if parsed.to != "stderr" else ():
                    tap(parsed)
                if parsed.to != "log":
                    shown = redacted(f"{parsed.message}\n" if _MARK in line else text)
                    out.write(shown.encode("utf-8", "surrogateescape"))

    threading.Thread(target=pass_on, name="standard error", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(kept, 2)


@dataclass(frozen=True, kw_only=True)
class SparkLine:
    """One line; what it does not name is None.

    to: whether it is for the log, for standard error, or for both. thread: that of the JVM, which names the query. ms:
    when it was said, in milliseconds since 1970.
    """

    message: str
    to: Destination = "both"
    level: str = "info"
    logger: str | None = None
    thread: str | None = None
    query: str | None = None
    batch: int | None = None
    ms: int | None = None

    def line(self) -> str:
        """As a marked line."""
        facts = {name: value for name, value in vars(self).items() if value is not None}
        return f"{MARK}{json.dumps(facts)}\n"

    @classmethod
    def read(cls, line: str) -> SparkLine:
        """What a line of standard error says; one without a mark, or one that another has cut, is taken as it is."""
        before, mark, marked = line.partition(MARK)
        if mark and not before.strip():
            try:
                return cls._from_facts(json.loads(marked))
            except (ValueError, TypeError, KeyError):
                pass
        return cls(message=line.rstrip("\n"))

    @classmethod
    def _from_facts(cls, facts: dict[str, Any]) -> SparkLine:
        further: dict[str, Any] = {name: int(facts[name]) for name in ("batch", "ms") if facts.get(name) is not None}
        further |= {name: str(facts[name]) for name in ("logger", "thread", "query") if facts.get(name)}
        level = str(facts.get("level") or "info").lower()
        return cls(
            message=str(facts["message"]).rstrip("\n"),
            to=facts.get("to", "both"),
            level={"warn": "warning", "fatal": "error"}.get(level, level),
            **further,
        )


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

    def handle(self: logging.Logger, record: logging.LogRecord) -> None:
        # A handler of our own would make basicConfig of the user's do nothing.
        if not getattr(_SHOWN, "alone", False) and (serving_query := serving()):
            _write_line(serving_query, record.levelname.lower(), _message(record), "log")
        # What handlers of the user's write was logged already.
        before, _SHOWN.alone = getattr(_SHOWN, "alone", False), True
        try:
            log(self, record)
        finally:
            _SHOWN.alone = before

    def end_of_task(cls: Any, task: Any) -> None:
        for stream in (out, err) if task is None else ():
            stream.end_line()
        set_task(task)

    logging.Logger.callHandlers = handle  # type: ignore[method-assign]
    TaskContext._setTaskContext = classmethod(end_of_task)  # type: ignore[assignment]


class _Marked:
    """A standard stream whose whole lines carry the query and the batch."""

    def __init__(self, below: TextIO, level: str) -> None:
        self._below, self._level = below, level
        self._open: tuple[tuple[str, int], str] | None = None

    def write(self, text: str) -> int:
        source = serving() if isinstance(text, str) and not text.startswith(CHATTER) else None
        if source is None:
            return self._below.write(text)
        if self._open is not None and self._open[0] != source:
            self.end_line()
        *whole, rest = ((self._open[1] if self._open else "") + text).split("\n")
        for line in whole:
            self._line(source, line)
        self._open = (source, rest) if rest else None
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def end_line(self) -> None:
        """Write what has no end of a line yet."""
        if self._open is not None:
            (source, rest), self._open = self._open, None
            self._line(source, rest)

    def _line(self, source: tuple[str, int], line: str) -> None:
        shown_alone = getattr(_SHOWN, "alone", False) or not line.strip()
        _write_line(source, self._level, line, "stderr" if shown_alone else "both")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def _write_line(source: tuple[str, int], level: str, message: str, to: Destination) -> None:
    line = SparkLine(message=message, level=level, query=source[0], batch=source[1], to=to)
    # In one write, so that lines of several workers stay whole.
    os.write(2, line.line().encode())


def _message(record: logging.LogRecord) -> str:
    try:
        message = f"{record.name}: {record.getMessage()}"
    except Exception:  # a message that does not fit its arguments; the user's handlers say so
        message = f"{record.name}: {record.msg}"
    return message + ("\n" + logging.Formatter().formatException(record.exc_info) if record.exc_info else "")


if __name__ == "__main__":
    from pyspark.daemon import manager

    install()
    manager()
