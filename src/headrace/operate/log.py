"""The log of a run: one line an event, of Headrace, Spark and the user's own code, in one file that is rotated."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO, cast

from headrace.model.operations import Log
from headrace.redaction import redacted
from headrace.user_code import current

FILE = "headrace.log"
# As log4j2.properties writes them.
_SPARK_LINE = re.compile(r"\d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<logger>\S+?): (?P<said>.*)", re.DOTALL)
_LEVELS = {"WARN": "warning", "FATAL": "error"}


def log_directory(storage: Path) -> Path:
    """Where the log of a project lies, beside the files that were rotated."""
    return storage / "logs"


class RunLog:
    """The open log; safe from any thread. A line that cannot be written is lost, and the run goes on."""

    def __init__(self, storage: Path, settings: Log) -> None:
        place = log_directory(storage)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._json = settings.format == "json"
        self._handler = _Private(
            place / FILE, maxBytes=settings.max_bytes, backupCount=settings.keep, encoding="utf-8", errors="replace"
        )
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        self._handler.handleError = lambda record: None  # type: ignore[method-assign]

    def write(
        self, level: str, message: str, *, query: str | None = None, batch: int | None = None, code: str | None = None
    ) -> None:
        """Write one event; several lines of a message become one."""
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message = redacted(message.rstrip())
        if self._json:
            facts = {"time": at, "level": level, "query": query, "batch": batch, "code": code, "message": message}
            line = json.dumps(facts, ensure_ascii=False)
        else:
            which = "-" if query is None else query if batch is None else f"{query}/{batch}"
            said = " ".join(part for part in (code, message.replace("\n", "\\n")) if part)
            line = f"{at} {level:<7} {which} {said}"
        self._handler.handle(logging.makeLogRecord({"msg": line}))

    def spark_line(self, line: str) -> None:
        """A line of the JVM's standard error, which is also that of Python workers."""
        match = _SPARK_LINE.match(line)
        if match:
            level = _LEVELS.get(match["level"], match["level"].lower())
            self.write(level, f"{match['logger']}: {match['said']}")
        elif line.strip():
            self.write("info", line)

    @contextmanager
    def taking_user_output(self) -> Iterator[None]:
        """Write also what the user's code prints and logs in this process, with the query and the batch it serves."""
        handler = _UserLogging(self)
        root = logging.getLogger()
        root.addHandler(handler)
        before = sys.stdout, sys.stderr
        ours = cast(TextIO, _Output(before[0], self, "info")), cast(TextIO, _Output(before[1], self, "warning"))
        sys.stdout, sys.stderr = ours
        try:
            yield
        finally:
            root.removeHandler(handler)
            if sys.stdout is ours[0]:
                sys.stdout = before[0]
            if sys.stderr is ours[1]:
                sys.stderr = before[1]

    def close(self) -> None:
        """Let the file go."""
        self._handler.close()


class _Private(RotatingFileHandler):
    """Each file is for its owner alone."""

    def _open(self) -> io.TextIOWrapper:
        opened = super()._open()
        with suppress(OSError):
            os.chmod(self.baseFilename, 0o600)
        return opened


class _UserLogging(logging.Handler):
    """What is logged by Python's own logging."""

    def __init__(self, log: RunLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("py4j"):
            return
        query, batch = current() or (None, None)
        with suppress(Exception):  # a message that does not fit its arguments
            message = f"{record.name}: {record.getMessage()}"
            if record.exc_info:
                message += "\n" + logging.Formatter().formatException(record.exc_info)
            self._log.write(record.levelname.lower(), message, query=query, batch=batch)


class _Output:
    """A standard stream whose lines are logged as well, while the user's code is running."""

    def __init__(self, below: TextIO, log: RunLog, level: str) -> None:
        self._below, self._log, self._level = below, log, level
        self._open = threading.local()

    def write(self, text: str) -> int:
        written = self._below.write(text)
        serving = current()
        if serving is not None and isinstance(text, str):
            *whole, rest = (getattr(self._open, "line", "") + text).split("\n")
            self._open.line = rest
            for line in filter(str.strip, whole):
                self._log.write(self._level, line, query=serving[0], batch=serving[1])
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._below)
