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
    """What this process takes from the modes of its new files."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    found = os.umask(0o077)
    os.umask(found)
    return found


def local_directories(conf: Mapping[str, str], environ: Mapping[str, str] | None = None) -> str:
    """Private directories for shuffle files and local state, one in each that Spark would take; gone at the end.

    Spark's own `blockmgr-...` are as open as the umask.
    """
    environ = os.environ if environ is None else environ
    wanted = environ.get(LOCAL_DIRECTORIES) or conf.get(LOCAL_SETTING) or tempfile.gettempdir()
    made = []
    for place in (each.strip() for each in wanted.split(",")):
        os.makedirs(place, exist_ok=True)
        made.append(tempfile.mkdtemp(prefix="headrace-spark-", dir=place))
    _made.extend(made)
    return ",".join(made)


_made: list[str] = []


@atexit.register
def discard_local_directories() -> None:
    """Remove what Spark has left there."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


@contextmanager
def writing_to(folder: Path, *, called: str = "storage directory") -> Iterator[None]:
    """Let an OSError of the block be the one finding of a directory that cannot be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(f"the {called} {folder}", error) from error


def unwritable(place: str, error: OSError) -> PlatformError:
    """What is raised where a place of the storage cannot be written: for lack of space, or of the right to."""
    what = f"{place} cannot be written: {reason(error)}"
    if error.errno in FULL:
        fix = "make room on that disk; what was committed is safe"
        return PlatformError(code="HR541", what=what, fix=fix)
    fix = "give the user that runs Headrace the right to write there, or name another `storage`"
    if error.errno == errno.EROFS:
        fix = "mount that file system so that it can be written, or name another `storage`"
    return PlatformError(code="HR540", what=what, fix=fix)
