"""Files that are whole after a crash of the process and of the machine: replaced, created or synced."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def replace_file(file: Path, text: str, *, shared: bool = False) -> None:
    """Let `file` hold `text`, or what it held before; never a part of either. Raises OSError.

    Who may read the old file may read the new one. shared: several processes may replace it at once.
    """
    with _draft(file, text, shared=shared) as draft:
        os.replace(draft, file)
    sync_directory(file.parent)


def create_file(file: Path, text: str) -> bool:
    """Let `file` hold `text` if it is not there; of several that create it at once, one does. Raises OSError."""
    with _draft(file, text, shared=True) as draft:
        try:
            # A link is made only where no file is.
            os.link(draft, file)
        except FileExistsError:
            return False
    sync_directory(file.parent)
    return True


def sync_file(file: Path) -> None:
    """Bring to the disk what was written into `file`, by this program or another. Raises OSError."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(folder: Path) -> None:
    """Bring the names in `folder` to the disk, where the file system can do that for a directory."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _draft(file: Path, text: str, *, shared: bool) -> Iterator[Path]:
    """A file beside `file` that holds `text`, on the disk; gone after the block."""
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex[:12]}.headrace" if shared else f".{file.name}.headrace")
    try:
        with draft.open("w", encoding="utf-8", newline="") as stream:
            with suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), file.stat().st_mode & 0o777)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
