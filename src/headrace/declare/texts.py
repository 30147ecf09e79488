"""The user's text files, read whole: what cannot be one is refused in a sentence before it costs time or memory."""

from __future__ import annotations

import stat
from pathlib import Path

MOST_BYTES = 5_000_000


class NoText(Exception):
    """A file cannot be read as text; the message says why, as `Permission denied` does."""


def read_text(path: Path) -> str:
    """The text of `path`, without a byte order mark; raises NoText."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise NoText("it is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise NoText("it is no regular file")
        if status.st_size > MOST_BYTES:
            raise NoText(f"it has {status.st_size:,} bytes, and {MOST_BYTES:,} are the most")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NoText("it is not UTF-8 text") from error
    except ValueError as error:  # a path with a null character
        raise NoText("its name is no name of a file") from error
    except OSError as error:
        raise NoText(error.strerror or "it cannot be opened") from error
    if "\0" in text:
        raise NoText("it is not text: it holds null characters")
    return text.replace("\r\n", "\n").replace("\r", "\n")
