"""A file written anew, created or removed so that it is whole after a crash of the process and of the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def replace_file(file: Path, text: str) -> None:
    """Let `file` hold `text`, or what it held before; never a part of either. Raises OSError.

    Hadoop's checksum beside it, which is that of the old text, goes first: a file without one is read as it is, a file
    with a wrong one not at all. The directory is synced between the two, so that no power cut brings it back later.
    Who may read the old file may read the new one.
    """
    draft = file.with_name(f".{file.name}.headrace")
    with draft.open("w", encoding="utf-8", newline="") as stream:
        with suppress(FileNotFoundError):
            os.fchmod(stream.fileno(), file.stat().st_mode & 0o777)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    _remove_checksum(file)
    os.replace(draft, file)
    sync_directory(file.parent)


def remove_file(file: Path) -> None:
    """Remove `file` and its checksum; one that is gone already is no fault. Raises OSError."""
    _remove_checksum(file)
    file.unlink(missing_ok=True)
    sync_directory(file.parent)


def sync_file(file: Path) -> None:
    """Bring to the disk what another program wrote into `file`, its name too. Raises OSError."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(file.parent)


def sync_directory(folder: Path) -> None:
    """Bring the names in `folder` to the disk, where the file system can do that for a directory."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum_of(file: Path) -> Path:
    """Where Hadoop keeps the checksums of a local file."""
    return file.with_name(f".{file.name}.crc")


def _remove_checksum(file: Path) -> None:
    checksum = checksum_of(file)
    if checksum.exists():
        checksum.unlink(missing_ok=True)
        sync_directory(file.parent)
