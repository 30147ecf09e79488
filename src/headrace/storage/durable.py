"""Files that are whole after a crash of the process and of the machine: replaced, created, published or synced."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from headrace.storage.remote import RemotePath

# Of Linux's fcntl.h.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def replace_file(file: Path, text: str, *, shared: bool = False) -> None:
    """Let `file` hold `text`, or what it held before; never a part of either. Raises OSError.

    Who may read the old file may read the new one. shared: several processes may replace it at once.
    """
    with replacing(file, shared=shared) as stream:
        stream.write(text)


@contextmanager
def replacing(file: Path, *, shared: bool = False, private: bool = False) -> Iterator[TextIO]:
    """Let `file` hold what the block writes, once the block is through; if it raises, what it held before.

    The draft's name begins with a dot, so that Spark does not read it. private: only its owner may read a new file.
    """
    if isinstance(file, RemotePath):
        text = io.StringIO()
        yield text
        file.write_text(text.getvalue())
        return
    with _draft(file, shared=shared, private=private) as (draft, stream):
        yield stream
        _finish(stream)
        os.replace(draft, file)
    sync_directory(file.parent)


def publish(made: Path, place: Path, last: Sequence[str] = ()) -> None:
    """Let `place` be the file or the directory `made`, with all that is in it, as `move` does. Raises OSError."""
    if isinstance(made, RemotePath):
        move(made, place, last)
        return
    inside = sorted(made.rglob("*"), reverse=True) if made.is_dir() else []
    for each in (*inside, made):
        (sync_directory if each.is_dir() else sync_file)(each)
    os.replace(made, place)
    sync_directory(place.parent)


def exchange(one: Path, other: Path) -> None:
    """Let each of two names, of files or of directories, be that of the other, in one step. Raises OSError.

    OSError with ENOTSUP: the system has no such step, and nothing was changed.
    """
    if isinstance(one, RemotePath):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP)) from None
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        # File systems that do not know the flag take it for a wrong one.
        number = errno.ENOTSUP if number in (errno.EINVAL, errno.ENOSYS) else number
        raise OSError(number, os.strerror(number))
    for folder in {one.parent, other.parent}:
        sync_directory(folder)


def move(old: Path, new: Path, last: Sequence[str] = ()) -> None:
    """Give a file or a directory another name in the same storage. Raises OSError.

    In one step, but for object stores: there the same call ends what was cut off, the old is whole until the new is,
    and of a directory the files named `last` come and go last, in this order.
    """
    if isinstance(old, RemotePath) and isinstance(new, RemotePath):
        old.move(new, last)
    else:
        os.rename(old, new)


def end_move(new: Path) -> None:
    """End the move of a directory to this name that was cut off, where a move takes more than one step."""
    if isinstance(new, RemotePath):
        new.end_move()


def copy_file(file: Path, target: Path) -> None:
    """Let `target` hold what `file` holds, with its times where files have such. Raises OSError."""
    if isinstance(file, RemotePath) and isinstance(target, RemotePath) and file.parts[:2] == target.parts[:2]:
        file.copy(target)
    elif isinstance(file, RemotePath) or isinstance(target, RemotePath):
        target.write_bytes(file.read_bytes())
        if not isinstance(target, RemotePath):
            times = file.stat()
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    else:
        shutil.copy2(file, target)


def create_file(file: Path, text: str) -> bool:
    """Let `file` hold `text` if it is not there; of several that create it at once, one does. Raises OSError."""
    if isinstance(file, RemotePath):
        return file.create(text.encode())
    with _draft(file, shared=True) as (draft, stream):
        stream.write(text)
        _finish(stream)
        try:
            # A link is made only where no file is.
            os.link(draft, file)
        except FileExistsError:
            return False
    sync_directory(file.parent)
    return True


def remove_tree(folder: Path) -> None:
    """Remove a directory with all that is in it; one that is gone already is no fault. Raises OSError."""
    if isinstance(folder, RemotePath):
        folder.remove_tree()
        return
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def sync_file(file: Path) -> None:
    """Bring to the disk what was written into `file`, by this program or another. Raises OSError.

    A store beyond this machine has what it has taken.
    """
    if isinstance(file, RemotePath):
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(folder: Path) -> None:
    """Bring the names in `folder` to the disk, where the file system can do that for a directory."""
    if isinstance(folder, RemotePath):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _draft(file: Path, *, shared: bool, private: bool = False) -> Iterator[tuple[Path, TextIO]]:
    """A file beside `file` to write into; gone after the block."""
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex[:12]}.headrace" if shared else f".{file.name}.headrace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with open(os.open(draft, flags, 0o600 if private else 0o666), "w", encoding="utf-8", newline="") as stream:
            with suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), file.stat().st_mode & 0o777)
            yield draft, stream
    finally:
        draft.unlink(missing_ok=True)


def _finish(stream: TextIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def names_in(folder: Path) -> list[str]:
    """The names in `folder`. Raises OSError."""
    if isinstance(folder, RemotePath):
        return [each.name for each in folder.entries()]
    with os.scandir(folder) as listing:
        return [entry.name for entry in listing]


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, however deep; none where there is no such directory."""
    if isinstance(folder, RemotePath):
        yield from folder.files()
        return
    for home, _, names in os.walk(folder):
        yield from (Path(home) / name for name in names)
