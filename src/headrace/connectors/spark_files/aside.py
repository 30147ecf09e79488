"""A directory of results set aside by renaming it, which takes no time and no space; or brought to an earlier batch.

On the way back Spark's log goes first, from its newest entry, so that readers who heed it see whole batches always.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.checkpoint.directory import COMPACT, body, broken_file, checksum_of, numbered_files, text_of
from headrace.contract import Held, OutputMode, Session, SinkContext, SinkRewind
from headrace.errors import AttemptFailed, CheckpointError, NothingChanged
from headrace.storage.durable import move, remove_tree, replace_file, swap

# What is added to the name of a directory or a table for the place of a rebuild.
REBUILD_SUFFIX = "__rebuild"
_LOG = "_spark_metadata"
_RECORD = "rewound.json"


def count_files(directory: Path) -> tuple[Held, ...]:
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
            move(directory, place_aside(directory, context))


def bring_back(directory: Path, context: SinkContext) -> None:
    """Give the directory its name again, if it was set aside; what holds no results in its place is removed."""
    kept = place_aside(directory, context)
    if not kept.exists():
        return
    if count_files(directory):
        fault = f"'{directory}' holds files again, so that the former ones cannot be brought back"
        fix = "look whose they are; move them away, and give the command again"
        raise NothingChanged(code="HR583", what=fault, fix=fix)
    with moving(directory):
        remove_tree(directory)
        move(kept, directory)


def discard(directory: Path, context: SinkContext) -> None:
    """Delete what was set aside."""
    kept = place_aside(directory, context)
    with moving(directory):
        remove_tree(kept)


def place_of_rebuild(directory: Path) -> Path:
    """Return where the result of a rebuild lies until it takes the place of that in `directory`."""
    return directory.with_name(f"{directory.name}{REBUILD_SUFFIX}")


def is_rebuilt(directory: Path, rebuilt: SinkContext) -> bool:
    """Whether the directory holds the result of `rebuilt`, which an exchange has begun to put in place."""
    return (directory / _mark(rebuilt)).exists()


def swap_in(directory: Path, context: SinkContext, rebuilt: SinkContext) -> None:
    """Put the directory of a rebuild in the place of `directory`, which is set aside; in one step if there is one."""
    new = place_of_rebuild(directory)
    with moving(directory):
        if not is_rebuilt(directory, rebuilt) and new.exists():
            replace_file(new / _mark(rebuilt), "")
            if directory.exists():
                swap(directory, new, place_aside(directory, context))
            else:
                move(new, directory)
        if new.exists() and is_rebuilt(directory, rebuilt):
            move(new, place_aside(directory, context))


def swap_out(directory: Path, context: SinkContext, rebuilt: SinkContext) -> None:
    """Take `swap_in` back."""
    new, kept = place_of_rebuild(directory), place_aside(directory, context)
    with moving(directory):
        if is_rebuilt(directory, rebuilt):
            former = next((place for place in (new, kept) if place.exists()), None)
            if former is None:
                move(directory, new)
            else:
                swap(directory, former, new)
        if kept.exists() and is_rebuilt(kept, rebuilt):
            move(kept, new)
        if kept.exists() and not directory.exists():
            move(kept, directory)


def _mark(rebuilt: SinkContext) -> str:
    """The file by which the directory of a rebuild is known; Spark takes no name that begins with _ for data."""
    return f"_headrace_rebuild_g{rebuilt.generation}"


def place_aside(directory: Path, context: SinkContext) -> Path:
    """Return the name of a directory that is set aside; Spark takes no name that begins with a dot for data."""
    return directory.with_name(f".{directory.name}.headrace-g{context.generation}")


def local_directory(path: str) -> Path:
    """The directory, which can be renamed. Raises SinkError for a place where none can be in one step."""
    if "://" in path and not path.startswith("file:"):
        fault = f"'{path}' lies where a directory cannot be renamed in one step"
        fix = "remove or move it with the tools of that storage, and give the command again"
        raise NothingChanged(code="HR587", what=fault, fix=fix)
    return Path(re.sub(r"^file:/+", "/", path)).absolute()


def _is_hidden(place: Path) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in place.parts)


@contextmanager
def moving(directory: Path) -> Iterator[None]:
    """Raise an OSError of the block as one sentence."""
    try:
        yield
    except OSError as error:
        fault = f"the directory '{directory}' cannot be moved out of the way or back: {error.strerror or error}"
        fix = "give this user the right to write the directory that it lies in, and give the command again"
        raise AttemptFailed(code="HR587", what=fault, fix=fix) from error


@dataclass(frozen=True)
class WrittenFiles:
    """The files below a directory that Spark's log there names."""

    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / _LOG

    @property
    def last(self) -> int | None:
        return max(numbered_files(self.log), default=None)

    def reaches(self, batch: int) -> bool:
        """Whether the log still says what was there after `batch`."""
        entries = numbered_files(self.log)
        return batch in entries and all(number in entries for number in range(_base(entries, batch), batch + 1))

    def earliest(self, first: int = 0) -> int | None:
        """The first batch, from `first` on, of which the log says what was there after it."""
        last = -1 if self.last is None else self.last
        return next((batch for batch in range(first, last + 1) if self.reaches(batch)), None)

    def after(self, batch: int) -> list[str]:
        """The files that came after `batch`, by their places in the directory."""
        newest = self.last
        then = set(self._files_through(batch))
        return [] if newest is None else sorted(set(self._files_through(newest)) - then)

    def _files_through(self, batch: int) -> Iterator[str]:
        entries = numbered_files(self.log)
        for number in range(_base(entries, batch), batch + 1):
            if (file := entries.get(number)) is not None:
                yield from self._files(file)

    def _files(self, file: Path) -> Iterator[str]:
        _, lines = body(file, text_of(file) or "")
        for line in lines:
            try:
                path = unquote(urlsplit(json.loads(line)["path"]).path) if line else ""
            except (ValueError, KeyError, TypeError) as error:
                raise broken_file(file, f"a line names no file: {line[:40]!r}") from error
            if path:
                yield os.path.relpath(path, self.directory)


@dataclass(frozen=True, kw_only=True)
class FilesRewind(SinkRewind):
    """A directory brought back to an earlier batch."""

    path: str

    @property
    def directory(self) -> Path:
        return local_directory(self.path)

    def hindrance(self, mode: OutputMode) -> str:
        return "" if "://" not in self.path else f"'{self.path}' lies where a file cannot be moved in one step"

    def earliest(self, context: SinkContext, batch: int, session: Session) -> int | None:
        return WrittenFiles(self.directory).earliest(batch)

    def list_taken_back(self, context: SinkContext, batch: int, session: Session) -> tuple[Held, ...]:
        directory = self.directory
        files = WrittenFiles(directory).after(batch)
        return (Held(count=len(files), what=f"files of results in '{directory}' are set aside"),) if files else ()

    def go_back(self, context: SinkContext, batch: int, session: Session) -> None:
        """Cut the log behind `batch`, and set the files aside that came later."""
        directory = self.directory
        files, kept = WrittenFiles(directory), _rewound(directory, context)
        last = files.last
        with moving(directory):
            record = _record(kept)
            if record is not None and last is not None and (record["batch"] != batch or _came_again(kept, last)):
                remove_tree(kept)
                record = None
            if last is not None and last > batch and not (record and numbered_files(kept / _LOG)):
                if not files.reaches(batch):
                    fault = f"Spark's log in '{directory}' no longer says what was there after batch {batch}"
                    fix = f"go back to batch {files.earliest(batch)} at most; or recompute the result: "
                    raise NothingChanged(code="HR580", what=fault, fix=f"{fix}headrace rebuild {context.query}")
                kept.mkdir(exist_ok=True)
                record = {"batch": batch, "files": files.after(batch)}
                replace_file(kept / _RECORD, json.dumps(record))
            if record is None:
                return
            for number, file in sorted(numbered_files(files.log).items(), reverse=True):
                if number > batch:
                    _move(file, kept / _LOG / file.name)
                    # The single entry may lie next to a compacted one.
                    _move(file.with_name(str(number)), kept / _LOG / str(number))
            for place in record["files"]:
                _move(directory / place, kept / place)

    def undo(self, context: SinkContext, batch: int, session: Session) -> None:
        """Bring the files back, and then the log, from its oldest entry on."""
        directory = self.directory
        files, kept = WrittenFiles(directory), _rewound(directory, context)
        record = _record(kept)
        if record is None or record["batch"] != batch:
            return
        if files.last is not None and _came_again(kept, files.last):
            fault = f"'{directory}' has files of batches after {batch} again"
            raise NothingChanged(code="HR583", what=fault, fix="go back to that batch once more, or keep them")
        with moving(directory):
            for place in record["files"]:
                _move(kept / place, directory / place)
            for number, file in sorted(numbered_files(kept / _LOG).items()):
                _move(kept / _LOG / str(number), files.log / str(number))
                _move(file, files.log / file.name)
            remove_tree(kept)

    def forget(self, context: SinkContext, session: Session) -> None:
        directory = self.directory
        kept = _rewound(directory, context)
        with moving(directory):
            remove_tree(kept)


def _rewound(directory: Path, context: SinkContext) -> Path:
    return directory.with_name(f".{directory.name}.headrace-rewound-g{context.generation}")


def _came_again(kept: Path, last: int) -> bool:
    """Whether a batch was written since, whose number is set aside too."""
    return any(number <= last for number in numbered_files(kept / _LOG))


def _record(kept: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads((kept / _RECORD).read_text(encoding="utf-8"))
        return record
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise CheckpointError(broken_file(kept / _RECORD, "it is not a record of a rewind").findings) from error


def _base(entries: dict[int, Path], batch: int) -> int:
    """The entry from which on a batch's log is read: the newest compacted one."""
    return max(
        (number for number, file in entries.items() if number <= batch and file.name.endswith(COMPACT)), default=0
    )


def _move(file: Path, place: Path) -> None:
    """Move a file with its checksum; one that is not there was moved already."""
    for old, new in ((file, place), (checksum_of(file), checksum_of(place))):
        if old.exists():
            new.parent.mkdir(parents=True, exist_ok=True)
            move(old, new)
