"""Standard error of Spark and its Python workers: lines that carry facts, and lines that tell nothing."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from headrace.redaction import redacted

# What PySpark's worker prints when a query with transformWithState starts, each line with an empty one after it.
CHATTER = (
    "Starting Streaming TransformWithStateInPandas Python worker",
    "Streaming TransformWithStateInPandas Python worker",
)
_CHATTER = tuple(text.encode() for text in CHATTER)
# A Python worker that Spark no longer listens to, as at the end of a task that wants no more rows, and its trace.
_FLUSH = b"PySpark daemon failed to flush the output to the worker process:"
_UNHEARD = (b"BrokenPipeError", b"ConnectionResetError")
# Begins such a line, as log4j2.properties and Python workers write it; nothing that is read by people contains it.
MARK = "\x1e"
_MARK = MARK.encode()
# What is told of each line as well, as the log of a run.
taps: list[Callable[[Said], None]] = []
Destination: TypeAlias = Literal["log", "stderr", "both"]


def telling(lines: Iterable[bytes], starts: tuple[bytes, ...]) -> Iterator[bytes]:
    """The lines that tell something: not those that begin as `starts`, PySpark's chatter, traces of a closed pipe."""
    blank_too, held = False, list[bytes]()
    for line in lines:
        if held:
            held.append(line)
            if line.strip() and not line.startswith((b" ", b"Traceback")):
                if not line.startswith(_UNHEARD):
                    yield from held
                held, blank_too = [], True
            continue
        if line.startswith(_FLUSH):
            held = [line]
        elif line.startswith(_CHATTER):
            blank_too = True
        elif not line.startswith(starts) and not (blank_too and not line.strip()):
            blank_too = False
            yield line
    yield from held


@contextmanager
def dropping_lines(*starts: bytes) -> Iterator[None]:
    """Let processes that are started in this block write to standard error, but for lines that begin so.

    What they write later, after the block, goes the same way until they end.
    """
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)

    def pass_on() -> None:
        with open(reading, "rb") as lines, open(kept, "wb", buffering=0) as out:
            for line in telling(lines, starts):
                text, said = _read(line)
                for tap in list(taps) if said.to != "stderr" else ():
                    tap(said)
                if said.to != "log":
                    out.write(text.encode("utf-8", "surrogateescape"))

    threading.Thread(target=pass_on, name="standard error", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(kept, 2)


def _read(line: bytes) -> tuple[str, Said]:
    """What is shown of a line, and what it says."""
    text = line.decode("utf-8", "surrogateescape")
    said = Said.read(text)
    return redacted(f"{said.message}\n" if _MARK in line else text), said


@dataclass(frozen=True, kw_only=True)
class Said:
    """One line; what it does not tell is None.

    to: whether it is for the log, for standard error, or for both. thread: that of the JVM, which tells the query.
    """

    message: str
    to: Destination = "both"
    level: str = "info"
    logger: str | None = None
    thread: str | None = None
    query: str | None = None
    batch: int | None = None

    def line(self) -> str:
        """As a marked line."""
        facts = {name: value for name, value in vars(self).items() if value is not None}
        return f"{MARK}{json.dumps(facts)}\n"

    @classmethod
    def read(cls, line: str) -> Said:
        """What a line of standard error says; one without a mark, or one that another has cut, is taken as it is."""
        before, mark, marked = line.partition(MARK)
        if mark and not before.strip():
            try:
                return cls._made(json.loads(marked))
            except (ValueError, TypeError, KeyError):
                pass
        return cls(message=line.rstrip("\n"))

    @classmethod
    def _made(cls, facts: dict[str, Any]) -> Said:
        batch = facts.get("batch")
        texts = {name: str(facts[name]) or None for name in ("logger", "thread", "query") if facts.get(name)}
        level = str(facts.get("level") or "info").lower()
        return cls(
            message=str(facts["message"]).rstrip("\n"),
            to=facts.get("to", "both"),
            level={"warn": "warning", "fatal": "error"}.get(level, level),
            batch=None if batch is None else int(batch),
            **texts,
        )
