"""Bring a batch's files of the checkpoint to the disk before a sink commits the batch; Spark does not sync them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from headrace.checkpoint.directory import COMPACT, Checkpoint, CommitEntry, Part, checksum_of, numbered_files
from headrace.errors import PlatformError
from headrace.storage.durable import files_below, sync
from headrace.storage.remote import store_at

_KINDS = ("changelog", "zip", "delta", "snapshot")
# A disk takes several files to its journal at once.
_AT_ONCE = 8
# The generation, the query, the queries, the storage directory, and what that lies in.
_MADE = 5


def sync_commits(checkpoint: Checkpoint) -> Callable[[int], None] | None:
    """Return what is called before each commit, with its batch; None where the store keeps files by itself.

    It raises PlatformError where the files cannot be brought to the disk.
    """
    if store_at(checkpoint.root).is_safe:
        return None
    durability = Durability(checkpoint)

    def sync_batch(batch: int) -> None:
        try:
            durability.sync(batch)
        except OSError as error:
            raise PlatformError(
                code="HR421",
                what=f"the checkpoint's files of batch {batch} cannot be brought to the disk: "
                f"{error.strerror or error}",
                fix=f"look at the disk of '{checkpoint.root}'; then start again: the batch is made again",
            ) from error

    return sync_batch


class Durability:
    """Syncs what a start after a power cut needs, so that the checkpoint is never behind the sink.

    That is, for batch N: its offsets and entries of source logs, the commit of batch N-1, and the state that N begins
    with. The first batch of a driver syncs all files; later ones the new files.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._entries: dict[Path, int] = {}
        self._stores: tuple[Path, ...] = ()
        self._begun = False

    def sync(self, batch: int) -> None:
        """Return when all that batch `batch` is made from is on the disk. Raises OSError."""
        begun, self._begun = self._begun, True
        if not begun:
            self._entries = {folder: max(numbered_files(folder), default=-1) for folder in self._logs()}
        files = list(self._files(batch) if begun else files_below(self.checkpoint.root))
        folders = {file.parent for file in files}
        if not begun:
            # Those in the checkpoint, and those that were made for it.
            root = self.checkpoint.root
            made = root.parents[:_MADE]
            folders = {at for file in files for at in file.parents if at.is_relative_to(root) or at in made}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            # A file that Spark has removed or replaced meanwhile is not needed any more.
            list(pool.map(_sync, files))
            list(pool.map(_sync, folders))

    def _logs(self) -> tuple[Path, ...]:
        return tuple(self.checkpoint.root / Part.SOURCES / name for name in self.checkpoint.source_names())

    def _files(self, batch: int) -> Iterator[Path]:
        root = self.checkpoint.root
        yield from _with_checksum(root / Part.OFFSETS / str(batch))
        yield from _with_checksum(root / Part.COMMITS / str(batch - 1))
        for folder in self._logs():
            number = self._entries.get(folder, -1) + 1
            while (file := _entry(folder, number)) is not None:
                yield from _with_checksum(file)
                self._entries[folder] = number
                number += 1
        if not self._stores:
            self._stores = _stores(root)
        commit = self.checkpoint.commit(batch - 1)
        for store in self._stores:
            for name in _names(commit, batch, store.relative_to(root / Part.STATE)):
                for kind in _KINDS:
                    yield from _with_checksum(store / f"{name}.{kind}")


def _entry(folder: Path, number: int) -> Path | None:
    for name in (str(number), f"{number}{COMPACT}"):
        if (folder / name).exists():
            return folder / name
    return None


def _stores(root: Path) -> tuple[Path, ...]:
    """The directories in which stores keep their versions; none before the first state is written."""
    return tuple(sorted({file.parent for kind in _KINDS for file in (root / Part.STATE).glob(f"*/*/**/*.{kind}")}))


def _names(commit: CommitEntry | None, version: int, store: Path) -> Iterator[str]:
    """What the files of a version may be called, but for their kind; `store`: its folder below that of the state."""
    operator, partition = int(store.parts[0]), int(store.parts[1])
    partitions = commit.state_ids.get(operator, ()) if commit is not None else ()
    if partition < len(partitions):
        yield from (f"{version}_{id_}" for id_ in partitions[partition])
    else:
        yield str(version)


def _with_checksum(file: Path) -> Iterator[Path]:
    for path in (file, checksum_of(file)):
        if path.exists():
            yield path


def _sync(path: Path) -> None:
    with suppress(FileNotFoundError):
        sync(path)
