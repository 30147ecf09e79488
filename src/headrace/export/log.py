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
from typing import TextIO

from headrace.checkpoint import Checkpoint
from headrace.contract import BatchRecord, Observer, Outcome, QueryStart, QueryState
from headrace.errors import Finding, HeadraceError
from headrace.model.operations import Log
from headrace.redaction import StreamAbove, redacted, standard_streams
from headrace.spark.jvm.stderr_filter import SparkLine
from headrace.storage.location import is_remote
from headrace.user_code import current

FILE = "headrace.log"


def log_directory(storage: Path) -> Path:
    """Return the directory of a project's log and its rotated files."""
    return storage / "logs"


def lines_of(storage: Path, query: str) -> Iterator[str]:
    """Yield the lines of one query in the log of a project, the oldest first, from the rotated files as well."""
    rotated = sorted(log_directory(storage).glob(f"{FILE}.*"), key=lambda file: -int(file.suffix[1:] or 0))
    for file in (*rotated, log_directory(storage) / FILE):
        with suppress(FileNotFoundError), file.open(encoding="utf-8", errors="replace") as lines:
            yield from (line.rstrip("\n") for line in lines if _query_of(line) == query)


def _query_of(line: str) -> str | None:
    if line.startswith("{"):
        with suppress(ValueError):
            query = json.loads(line).get("query")
            return None if query is None else str(query)
        return None
    words = line.split(None, 3)
    return words[2].partition("/")[0] if len(words) > 2 else None


class RunLog(Observer):
    """The open log; safe from any thread. A line that cannot be written is lost, and the run continues."""

    def __init__(self, storage: Path, settings: Log) -> None:
        place = log_directory(storage)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._json = settings.format == "json"
        self._handler = _PrivateFile(
            place / FILE, maxBytes=settings.max_bytes, backupCount=settings.keep, encoding="utf-8", errors="replace"
        )
        self._handler.setFormatter(logging.Formatter("%(message)s"))

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
            text = " ".join(part for part in (code, message.replace("\n", "\\n")) if part)
            line = f"{at} {level:<7} {which} {text}"
        self._handler.handle(logging.makeLogRecord({"msg": line}))

    def preparing(self, what: str, query: str | None) -> None:
        self.write("info", what, query=query)

    def starting(self, query: str) -> None:
        self.write("info", "starting", query=query)

    def started(self, start: QueryStart) -> None:
        self.write("info", f"started, {start.trigger}, {start.mode} mode into {start.sink}", query=start.query)

    def progressed(self, record: BatchRecord) -> None:
        text = f"{record.rows:,} rows in {record.duration_ms:,} ms"
        self.write("info", text, query=record.query, batch=record.batch)

    def stopping(self, *, now: bool) -> None:
        self.write("info", "stopping at once" if now else "stopping after the running batches")

    def changed(self, state: QueryState) -> None:
        if state.state == "paused":
            self.write("info", f"paused by {state.by}", query=state.query)
        elif state.waits is not None:
            self.write("warning", f"{state.state} {state.trouble}", query=state.query)

    def ended(self, outcome: Outcome) -> None:
        if outcome.finding is None:
            self.write("info", str(outcome.state), query=outcome.query)
        else:
            self.note(outcome.finding, query=outcome.query)

    def note(self, finding: Finding, *, query: str | None = None) -> None:
        level = "info" if finding.severity == "note" else finding.severity
        text = f"{finding.where}: {finding.what}" + (f" (fix: {finding.fix})" if finding.fix else "")
        self.write(level, text, query=query, code=finding.code)

    @contextmanager
    def capture_user_output(self) -> Iterator[None]:
        """Write also what the user's code prints and logs in this process, with the query and the batch it serves."""
        handler = _UserLogging(self)
        root = logging.getLogger()
        root.addHandler(handler)
        out, err = _Output(sys.stdout, self, "info"), _Output(sys.stderr, self, "warning")
        try:
            with standard_streams(out=out, err=err):
                yield
        finally:
            root.removeHandler(handler)

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


class _PrivateFile(RotatingFileHandler):
    """Each file is for its owner alone. Where the disk is full a line is lost, never the run or the lines after it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, the name of logging
        # What is left in the stream's buffer would make each later write fail, also when there is room again.
        self._close_stream()

    def close(self) -> None:
        self._close_stream()
        super().close()

    def _close_stream(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.close()

    def _open(self) -> io.TextIOWrapper:
        opened = super()._open()
        with suppress(OSError):
            os.chmod(self.baseFilename, 0o600)
            _end_half_a_line(Path(self.baseFilename), opened)
        return opened


def _end_half_a_line(file: Path, opened: io.TextIOWrapper) -> None:
    """End a line that a full disk or a killed driver has cut off, so that the next line is separate."""
    with file.open("rb") as written:
        if written.seek(0, os.SEEK_END) and written.seek(-1, os.SEEK_END) and written.read() != b"\n":
            opened.write("\n")


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


class _Output(StreamAbove):
    """A standard stream whose lines are logged as well, while the user's code is running."""

    def __init__(self, below: TextIO, log: RunLog, level: str) -> None:
        super().__init__(below)
        self._log, self._level = log, level
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


# A query's own thread, and what Spark's scheduler says of a query's tasks in threads that serve all of them.
_THREAD = re.compile(r"stream execution thread for (?P<query>\S+) \[id = ")
_SCHEDULER = re.compile(r"\[queryId = (?P<id>[^\]]*)\] (?:\[batchId = (?P<batch>\d+)\] )?")


class SparkLines(Observer):
    """Takes lines in the thread that reads them, and knows from the run where each query has its checkpoint."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._checkpoints: dict[str, Checkpoint] = {}

    def started(self, start: QueryStart) -> None:
        # Who reads these lines must not wait for a store beyond this machine.
        if not is_remote(start.checkpoint):
            self._checkpoints[start.query] = Checkpoint(start.checkpoint)

    def take(self, spark_line: SparkLine) -> None:
        if not spark_line.message.strip():
            return
        query, batch, message = spark_line.query, spark_line.batch, spark_line.message
        if match := _SCHEDULER.match(message):
            query, batch = self._with_id(match["id"]) or query, int(match["batch"]) if match["batch"] else batch
            message = message[match.end() :]
        if query is None and spark_line.thread and (match := _THREAD.search(spark_line.thread)):
            query = match["query"]
        if query is not None and batch is None:
            batch = self._newest_batch(query, spark_line.ms)
        if spark_line.logger:
            message = f"{spark_line.logger}: {message}"
        self._log.write(spark_line.level, message, query=query, batch=batch)

    def _newest_batch(self, query: str, ms: int | None) -> int | None:
        """Return the newest batch that Spark had begun by then, to which its line belongs: it makes one at a time.

        A line is read some time after it was said. ms: when that was; None: now.
        """
        checkpoint = self._checkpoints.get(query)
        with suppress(HeadraceError, OSError):
            numbers = [] if checkpoint is None else sorted(checkpoint.offset_numbers())
            while checkpoint is not None and ms is not None and len(numbers) > 1:
                newest = checkpoint.offset(numbers[-1])
                if newest is None or newest.timestamp_ms <= ms:
                    break
                numbers.pop()
            return numbers[-1] if numbers else None
        return None

    def _with_id(self, query_id: str) -> str | None:
        for query, checkpoint in list(self._checkpoints.items()):
            with suppress(HeadraceError, OSError):
                if checkpoint.id == query_id:
                    return query
        return None
