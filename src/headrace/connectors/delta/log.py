"""The log of a Delta table as Python values: what each version added and removed, and what a batch took of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from headrace.contract import SourcePrefix

LOG = "_delta_log"

# An action `add` of the log: a file of the table, with its partition, size and deleted rows.
Add: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Commit:
    """One version of a table: the actions of its file in the log, in their order."""

    version: int
    actions: tuple[Mapping[str, Any], ...]

    @property
    def adds(self) -> list[Add]:
        """Every file that came in, also where rows were only moved to it."""
        return [action["add"] for action in self.actions if "add" in action]

    @property
    def removes(self) -> list[Mapping[str, Any]]:
        """Every file that went out."""
        return [action["remove"] for action in self.actions if "remove" in action]

    @property
    def new(self) -> list[Add]:
        """The files with new rows, which is what a stream reads."""
        return [add for add in self.adds if add["dataChange"]]

    @property
    def takes_rows(self) -> bool:
        """Whether rows were changed or deleted."""
        return any(remove.get("dataChange", True) for remove in self.removes)

    @property
    def txn_ids(self) -> dict[str, int]:
        """The transaction identifiers that came with it."""
        actions = [action["txn"] for action in self.actions if "txn" in action]
        return {txn["appId"]: int(txn["version"]) for txn in actions}

    @property
    def note(self) -> Mapping[str, Any]:
        """The writer's note in JSON (`userMetadata`); empty where there is none, or something else."""
        for action in self.actions:
            try:
                note = json.loads(action.get("commitInfo", {}).get("userMetadata") or "{}")
            except ValueError:
                continue
            if note and isinstance(note, dict):
                return note
        return {}


def commit(version: int, text: str) -> Commit:
    """Parse a file of the log."""
    return Commit(version, tuple(json.loads(line) for line in text.splitlines() if line.strip()))


def file_name(version: int) -> str:
    """The name of the log's file of a version."""
    return f"{version:020d}.json"


def local(location: str) -> Path | None:
    """The directory of a table on this machine's file system; None elsewhere."""
    plain = re.sub(r"^file:/+", "/", location)
    return None if re.match(r"[\w.+-]+:/", plain) else Path(plain)


def local_commits(place: Path, first: int, last: int | None = None) -> Iterator[Commit]:
    """The versions from `first` on, up to the first that is not there."""
    for version in count(first):
        if last is not None and version > last:
            return
        try:
            text = (place / LOG / file_name(version)).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return
        yield commit(version, text)


def newest(place: Path) -> int | None:
    """The last version in the log; None where there is none."""
    names = (file.name.removesuffix(".json") for file in (place / LOG).glob("[0-9]*.json"))
    return max((int(name) for name in names if name.isdigit()), default=None)


def table_id(place: Path) -> str | None:
    """The id that the table was given when it was made, as long as the log has it."""
    for file in sorted((place / LOG).glob("[0-9]*.json")):
        for action in commit(0, file.read_text(encoding="utf-8")).actions:
            if "metaData" in action:
                return str(action["metaData"]["id"])
    return None


def replay(place: Path, version: int) -> tuple[Add, ...] | None:
    """The files of a table at `version`, in the order in which a stream reads them; None if its log was cut."""
    try:
        written = (place / LOG / file_name(version)).stat().st_mtime_ns
    except OSError:
        return None
    return _replay(place, version, written)


@lru_cache(maxsize=8)
def _replay(place: Path, version: int, written: int) -> tuple[Add, ...] | None:
    """Replay the log; `written` keeps the result of a former table in the same place from being reused."""
    there: dict[str, Add] = {}
    last = -1
    for version_commit in local_commits(place, 0, version):
        for remove in version_commit.removes:
            there.pop(remove["path"], None)
        there.update((add["path"], add) for add in version_commit.adds)
        last = version_commit.version
    return tuple(in_order(list(there.values()))) if last == version else None


def in_order(files: Sequence[Add]) -> list[Add]:
    """The files of one version as Delta's stream numbers them."""
    return sorted(files, key=lambda add: (add["modificationTime"], add["path"].encode()))


@dataclass(frozen=True)
class DeltaOffset:
    """How far a batch went: through the file `index` of `version`; a negative index means none of its files.

    initial: the files are those that the table had at `version`, and not those that it added.
    """

    version: int
    index: int
    initial: bool


@dataclass(frozen=True)
class VersionSpan:
    """What a batch took: all after `start`, through `end`."""

    batch: int
    start: DeltaOffset
    end: DeltaOffset

    @property
    def commits(self) -> range:
        """The versions whose added files it took, wholly or in part."""
        first = self.start.version + 1 if self.start.initial else self.start.version
        last = self.end.version if self.end.index >= 0 and not self.end.initial else self.end.version - 1
        return range(first, last + 1)


def offset(text: str) -> DeltaOffset:
    """An offset as Delta writes it; below zero lie the marks before a version's first file."""
    facts = json.loads(text)
    return DeltaOffset(int(facts["reservoirVersion"]), int(facts["index"]), bool(facts["isStartingVersion"]))


def spans(prefix: SourcePrefix, begin: int | None) -> list[VersionSpan]:
    """Return what each batch took. `begin`: the version at which the stream was set to start; None: the whole table.

    The first batch has no start in the checkpoint. A stream of the whole table began with the version that its first
    offset is in, or, where that offset has gone past the files of the table, with the version before.
    """
    spans = []
    for batch in prefix.batches:
        if batch.end is None or batch.end == batch.start:
            continue
        end = offset(batch.end)
        if batch.start is not None:
            start = offset(batch.start)
        elif begin is not None:
            start = DeltaOffset(begin, -1, False)
        else:
            start = DeltaOffset(end.version if end.initial else end.version - 1, -1, True)
        spans.append(VersionSpan(batch.batch, start, end))
    return spans


def place_of(location: str, add: Add) -> str:
    """Return the path of a file of the log; only those of a shallow clone are named in full."""
    path = unquote(add["path"])
    whole = path if path.startswith("/") or re.match(r"[\w.+-]+:/", path) else f"{location}/{path}"
    return re.sub(r"^file:/+", "/", whole)
