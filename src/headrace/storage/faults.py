"""What is said of storage that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import Finding, PlatformError


@contextmanager
def writing_to(folder: Path, *, called: str = "storage directory") -> Iterator[None]:
    """Let an OSError of the block be the one finding of a directory that cannot be written."""
    try:
        yield
    except OSError as error:
        raise PlatformError(
            Finding(
                code="HR540",
                what=f"the {called} {folder} cannot be written: {error.strerror or error}",
                fix="give the user that runs Headrace the right to write there, or name another `storage`",
            )
        ) from error
