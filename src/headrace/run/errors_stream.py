"""Standard error of a child process, passed on without lines that tell nobody anything."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
            for line in lines:
                if not line.startswith(starts):
                    out.write(line)

    threading.Thread(target=pass_on, name="standard error", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(kept, 2)
