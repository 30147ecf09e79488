"""What is said of storage that cannot be used."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import Finding, PlatformError


def unwritable(folder: Path, fault: OSError) -> PlatformError:
    """The error of a storage directory that refuses to be written."""
    return PlatformError(
        Finding(
            code="HR540",
            what=f"the storage directory {folder} cannot be written: {fault.strerror or fault}",
            fix="give the user that runs Headrace the right to write there, or name another `storage`",
        )
    )
