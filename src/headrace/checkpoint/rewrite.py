"""A file of Spark's checkpoint replaced or removed, so that Spark reads it as it is now after any crash."""

from __future__ import annotations

from pathlib import Path

from headrace.storage import durable


def replace_file(file: Path, text: str) -> None:
    """Let `file` hold `text`, or what it held before; never a part of either. Raises OSError.

    Hadoop's checksum beside it, which is that of the old text, goes first: a file without one is read as it is, a file
    with a wrong one not at all. The directory is synced between the two, so that no power cut brings it back later.
    """
    _remove_checksum(file)
    durable.replace_file(file, text)


def remove_file(file: Path) -> None:
    """Remove `file` and its checksum; one that is gone already is no fault. Raises OSError."""
    _remove_checksum(file)
    file.unlink(missing_ok=True)
    durable.sync_directory(file.parent)


def checksum_of(file: Path) -> Path:
    """Where Hadoop keeps the checksums of a local file."""
    return file.with_name(f".{file.name}.crc")


def _remove_checksum(file: Path) -> None:
    checksum = checksum_of(file)
    if checksum.exists():
        checksum.unlink(missing_ok=True)
        durable.sync_directory(file.parent)
