"""A directory of results set aside: renamed beside its place, so that it takes no time and no space."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.contract import Held, KeptResult, SinkContext
from headrace.errors import Finding, NothingChanged
from headrace.storage.durable import exchange, replace_file, sync_directory

# What is added to the name of a directory or a table for the place of a rebuild.
BESIDE = "__rebuild"

# Spark's log of a directory of files tells by their numbers which batches are in.
FILES_STAY = KeptResult(
    possible=False, why="Spark's log of its files would take the new batches for those that are written, and skip them"
)


def held(directory: Path) -> tuple[Held, ...]:
    """The files of results below `directory`, and how many bytes they have."""
    files = [
        Path(folder) / name
        for folder, folders, names in os.walk(directory)
        for name in names
        if not name.startswith(("_", ".")) and not _is_hidden(Path(folder).relative_to(directory))
    ]
    return (Held(count=len(files), what=f"files of results in '{directory}'"),) if files else ()


def set_aside(directory: Path, context: SinkContext) -> None:
    """Give the directory another name, if it is there."""
    if directory.exists():
        with moving(directory):
            _rename(directory, aside(directory, context))


def bring_back(directory: Path, context: SinkContext) -> None:
    """Give the directory its name again, if it was set aside; what holds no results in its place is removed."""
    kept = aside(directory, context)
    if not kept.exists():
        return
    if held(directory):
        what = f"'{directory}' holds files again, so that the former ones cannot be brought back"
        fix = "look whose they are; move them away, and give the command again"
        raise NothingChanged(Finding(code="HR583", what=what, fix=fix))
    with moving(directory):
        if directory.exists():
            shutil.rmtree(directory)
        _rename(kept, directory)


def discard(directory: Path, context: SinkContext) -> None:
    """Delete what was set aside."""
    kept = aside(directory, context)
    with moving(directory):
        if kept.exists():
            shutil.rmtree(kept)


def beside(directory: Path) -> Path:
    """Where the result of a rebuild lies until it takes the place of that in `directory`."""
    return directory.with_name(f"{directory.name}{BESIDE}")


def is_rebuilt(directory: Path, rebuilt: SinkContext) -> bool:
    """Whether the directory holds the result of `rebuilt`, which an exchange has begun to put in place."""
    return (directory / _mark(rebuilt)).exists()


def swap_in(directory: Path, context: SinkContext, rebuilt: SinkContext) -> None:
    """Let the directory beside take the place of `directory`, which is set aside; one step where the system has one."""
    new = beside(directory)
    with moving(directory):
        if not is_rebuilt(directory, rebuilt) and new.exists():
            replace_file(new / _mark(rebuilt), "")
            if directory.exists():
                _exchange(directory, new, aside(directory, context))
            else:
                _rename(new, directory)
        if new.exists() and is_rebuilt(directory, rebuilt):
            _rename(new, aside(directory, context))


def swap_out(directory: Path, context: SinkContext, rebuilt: SinkContext) -> None:
    """Take `swap_in` back."""
    new, kept = beside(directory), aside(directory, context)
    with moving(directory):
        if is_rebuilt(directory, rebuilt):
            former = next((each for each in (new, kept) if each.exists()), None)
            if former is None:
                _rename(directory, new)
            else:
                _exchange(directory, former, new)
        if kept.exists() and is_rebuilt(kept, rebuilt):
            _rename(kept, new)
        if kept.exists() and not directory.exists():
            _rename(kept, directory)


def _exchange(directory: Path, other: Path, free: Path) -> None:
    """Let `other` be `directory`; what was there gets the name of `other`, or `free` where it takes two steps."""
    try:
        exchange(directory, other)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        _rename(directory, free)
        _rename(other, directory)


def _mark(rebuilt: SinkContext) -> str:
    """The file by which the directory of a rebuild is known; Spark takes no name that begins with _ for data."""
    return f"_headrace_rebuild_g{rebuilt.generation}"


def aside(directory: Path, context: SinkContext) -> Path:
    """What the directory is called when it is set aside; Spark takes no name that begins with a dot for data."""
    return directory.with_name(f".{directory.name}.headrace-g{context.generation}")


def local_directory(path: str) -> Path:
    """The directory, which can be renamed. Raises SinkError."""
    require_local(path)
    return Path(path).absolute()


def require_local(path: str) -> None:
    """Raise SinkError for a place where no directory can be renamed in one step."""
    if "://" in path and not path.startswith("file:"):
        what = f"'{path}' lies where a directory cannot be renamed in one step"
        fix = "remove or move it with the tools of that storage, and give the command again"
        raise NothingChanged(Finding(code="HR587", what=what, fix=fix))


def _rename(old: Path, new: Path) -> None:
    os.rename(old, new)
    sync_directory(new.parent)


def _is_hidden(place: Path) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in place.parts)


@contextmanager
def moving(directory: Path) -> Iterator[None]:
    """Tell an OSError of the block in one sentence."""
    try:
        yield
    except OSError as error:
        what = f"the directory '{directory}' cannot be moved out of the way or back: {error.strerror or error}"
        fix = "give this user the right to write the directory that it lies in, and give the command again"
        raise NothingChanged(Finding(code="HR587", what=what, fix=fix)) from error
