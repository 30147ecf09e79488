"""Standard output that has nothing but the command's lines of JSON."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

_lock = threading.Lock()
_own: list[TextIO] = []


@contextmanager
def json_alone() -> Iterator[None]:
    """Let what else prints on this process's standard output print on standard error while the block runs.

    That is the project's own code, and the JVM: its warnings, and the batches of Spark's console sink. Where standard
    output is no file of the process, as in a notebook, it stays as it is.
    """
    if _own or not _is_file(sys.stdout, 1) or not _is_file(sys.stderr, 2):
        yield
        return
    sys.stdout.flush()
    own = open(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115
    _own.append(own)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        os.dup2(own.fileno(), 1)
        _own.remove(own)
        with suppress(BrokenPipeError):
            own.close()


def write_line(line: str) -> None:
    """Write one line, whole also if several threads write. Raises BrokenPipeError where nobody reads any more."""
    with _lock:
        stream = _stream()
        stream.write(line + "\n")
        stream.flush()


def for_child() -> TextIO | None:
    """The standard output for another `headrace` process whose lines are this command's as well."""
    return _own[-1] if _own else None


def drop() -> None:
    """Write no more, after a BrokenPipeError: Python is not to try again at its exit what could not be written."""
    with _lock:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _stream().fileno())
        os.close(nowhere)


def _stream() -> TextIO:
    return _own[-1] if _own else sys.stdout


def _is_file(stream: TextIO, number: int) -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return stream.fileno() == number
    return False
