"""Directories that their owner alone may read, whatever the umask, and what is said of storage that cannot be used."""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import PlatformError, reason
from headrace.storage.remote import at

LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"
LOCAL_SETTING = "spark.local.dir"
FULL = (errno.ENOSPC, errno.EDQUOT)


def make_private(storage: Path) -> None:
    """Make the storage directory, or take it from the eyes of others. Raises OSError where it cannot be made."""
    store, inside = at(storage)
    store.make_private(inside)


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """A private directory in `parent`, or where this machine has such, that is gone after the block."""
    folder = Path(tempfile.gettempdir()) if parent is None else parent
    store, inside = at(folder)
    with store.scratch(inside) as place:
        yield folder / place.rpartition("/")[2]


def umask() -> int:
    """The umask of this process."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def local_directories(conf: Mapping[str, str], environ: Mapping[str, str] | None = None) -> str:
    """Make a private directory for shuffle files and local state in each one that Spark would use; removed at the end.

    Spark's own `blockmgr-...` are as open as the umask.
    """
    environ = os.environ if environ is None else environ
    wanted = environ.get(LOCAL_DIRECTORIES) or conf.get(LOCAL_SETTING) or tempfile.gettempdir()
    made = []
    for place in (directory.strip() for directory in wanted.split(",")):
        os.makedirs(place, exist_ok=True)
        made.append(tempfile.mkdtemp(prefix="headrace-spark-", dir=place))
    _made.extend(made)
    return ",".join(made)


_made: list[str] = []


@atexit.register
def discard_local_directories() -> None:
    """Remove the directories and the files that Spark left there."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


@contextmanager
def writing_to(folder: Path, *, called: str = "storage directory") -> Iterator[None]:
    """Turn an OSError of the block into the finding of a directory that cannot be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(f"the {called} {folder}", error) from error


def unwritable(place: str, error: OSError) -> PlatformError:
    """The error for a place of the storage that cannot be written: no space, or no right."""
    fault = f"{place} cannot be written: {reason(error)}"
    if error.errno in FULL:
        fix = "make room on that disk; what was committed is safe"
        return PlatformError(code="HR541", what=fault, fix=fix)
    fix = "give the user that runs Headrace the right to write there, or name another `storage`"
    if error.errno == errno.EROFS:
        fix = "mount that file system so that it can be written, or name another `storage`"
    return PlatformError(code="HR540", what=fault, fix=fix)
