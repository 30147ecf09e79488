"""Files that are whole after a crash of the process and of the machine, on this machine's disks and in stores."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from headrace.storage.remote import at, lie_together
from headrace.storage.store import Store


def replace_file(file: Path, text: str, *, shared: bool = False) -> None:
    """Let `file` hold `text`, or what it held before; never a part of either. Raises OSError.

    Who may read the old file may read the new one. shared: several processes may replace it at once.
    """
    with replacing(file, shared=shared) as stream:
        stream.write(text)


@contextmanager
def replacing(file: Path, *, shared: bool = False, private: bool = False) -> Iterator[TextIO]:
    """Let `file` hold what the block writes, once the block is through; if it raises, what it held before.

    private: only its owner may read a new file.
    """
    store, inside = at(file)
    with store.writing(inside, shared=shared, private=private) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        yield text
        text.detach()


def create_file(file: Path, text: str) -> bool:
    """Let `file` hold `text` if it is not there; of several that create it at once, one does. Raises OSError."""
    store, inside = at(file)
    return store.create(inside, text.encode())


def copy_file(file: Path, target: Path) -> None:
    """Let `target` hold what `file` holds, with its times where files have such. Raises OSError.

    The directory of the copy is made.
    """
    (store, inside), (other, new) = at(file), at(target)
    if lie_together(file, target):
        other.copy(inside, new)
    else:
        other.copy_from(store, inside, new)


def link(file: Path, target: Path) -> None:
    """Let `target` be the same file, or one of the same content where a file has one name only. Raises OSError."""
    store, inside, new = _both(file, target)
    store.link(inside, new)


def publish(made: Path, place: Path, last: Sequence[str] = ()) -> None:
    """Let `place` be the file or the directory `made`, with all that is in it, as `move` does. Raises OSError."""
    store, inside, new = _both(made, place)
    store.publish(inside, new, last)


def move(old: Path, new: Path, last: Sequence[str] = ()) -> None:
    """Give a file or a directory another name in the same storage, and bring both names to the disk. Raises OSError.

    In one step, but for object stores: there the old is whole until the new is, and of a directory the files named
    `last` come last, in this order.
    """
    store, inside, target = _both(old, new)
    store.move(inside, target, last)
    for folder in {old.parent, new.parent}:
        sync(folder)


def swap(home: Path, other: Path, free: Path, last: Sequence[str] = ()) -> None:
    """Let `other` be `home`, in one step where the system has such: what was there gets the name of `other`.

    Where it takes two moves, as `move` does them, what was there gets the name `free`. Raises OSError.
    """
    store, inside, target = _both(home, other)
    try:
        store.exchange(inside, target)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        move(home, free, last)
        move(other, home, last)


def remove_tree(folder: Path) -> None:
    """Remove a directory with all that is in it; one that is gone already is not a fault. Raises OSError."""
    store, inside = at(folder)
    store.delete(inside)


def sync(place: Path) -> None:
    """Bring to the disk what was written into a file, or the names in a directory. Raises OSError.

    A store beyond this machine has what it has taken.
    """
    store, inside = at(place)
    store.sync(inside)


def names_in(folder: Path) -> list[str]:
    """The names in `folder`. Raises OSError."""
    store, inside = at(folder)
    return store.names(inside)


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, however deep; none where there is no such directory."""
    store, inside = at(folder)
    return (folder / name for name in store.files_below(inside))


def size_of(place: Path) -> int:
    """The bytes of a file, or of all files below a directory; what goes away meanwhile has none."""
    store, inside = at(place)
    return store.size_bytes(inside)


def _both(old: Path, new: Path) -> tuple[Store, str, str]:
    if not lie_together(old, new):
        raise OSError(errno.EXDEV, "one is not in the storage of the other", str(new))
    return *at(old), at(new)[1]
