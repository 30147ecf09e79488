"""The state that the next batch begins with: whether each store's snapshot and changes are there and whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.checkpoint.content import fault_of, state_fault_of
from headrace.checkpoint.logs import numbered
from headrace.checkpoint.state_operators import DEFAULT_STORE, StateOperator, state_operator
from headrace.errors import CheckpointError, Finding, Where

_FILE = re.compile(r"(?P<version>\d+)(?:_[^.]+)?\.(?P<kind>zip|changelog|delta|snapshot)")
_SNAPSHOTS = {"changelog": "zip", "delta": "snapshot"}


def version_of(name: str) -> int | None:
    """The version of the state that a file of this name, or the checksum beside it, belongs to; None: to none."""
    match = _FILE.fullmatch(name.removeprefix(".").removesuffix(".crc"))
    return None if match is None else int(match["version"])


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A file of a state store that is missing or damaged; `without`: the state is whole if it is removed."""

    file: Path
    version: int
    why: str
    without: bool = False


@dataclass(frozen=True)
class Store:
    """One store of one partition. Version N is what it held when batch N began."""

    folder: Path
    snapshots: dict[int, list[Path]] = field(default_factory=dict)
    changes: dict[int, list[Path]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Store:
        """The files of the store in `folder`; none if it is not there."""
        store = cls(folder)
        for file in folder.iterdir() if folder.is_dir() else ():
            if (match := _FILE.fullmatch(file.name)) is not None:
                files = store.changes if match["kind"] in _SNAPSHOTS else store.snapshots
                files.setdefault(int(match["version"]), []).append(file)
        return store

    def bad(self, version: int) -> Bad | None:
        """The first file that is missing or damaged of those that make up `version`: a snapshot and what came after."""
        base = max((number for number in self.snapshots if number <= version), default=0)
        if base and (fault := _fault(self.snapshots[base])) is not None:
            earlier = Store(self.folder, {n: files for n, files in self.snapshots.items() if n < base}, self.changes)
            without = earlier.bad(version) is None
            return Bad(file=self.snapshots[base][0], version=base, why=fault, without=without)
        for number in range(base + 1, version + 1):
            if number not in self.changes:
                return Bad(file=self.folder / f"{number}.{self._kind}", version=number, why="it is missing")
            if (fault := _fault(self.changes[number])) is not None:
                return Bad(file=self.changes[number][0], version=number, why=fault)
        return None

    @property
    def _kind(self) -> str:
        names = {file.suffix for files in (*self.changes.values(), *self.snapshots.values()) for file in files}
        return "delta" if names & {".delta", ".snapshot"} else "changelog"


def state_problems(root: Path, version: int, committed: int | None, partitions: int | None) -> Iterator[Finding]:
    """What is wrong with the state of the checkpoint `root` that batch `version` begins with.

    partitions: how many there are, where Spark's own metadata no longer tells.
    """
    folders = [root / "state" / str(number) for number in sorted(numbered(root / "state"))] if version else []
    stores: list[tuple[StateOperator, int, Store]] = []
    for folder in folders:
        try:
            operator = state_operator(folder)
        except CheckpointError as error:
            yield from error.findings
            continue
        if operator is None:
            yield _metadata_missing(folder)
            continue
        for partition in range(partitions or operator.partitions):
            home = folder / str(partition)
            stores += [
                (operator, partition, Store.read(home if name == DEFAULT_STORE else home / name))
                for name in operator.stores
            ]
        yield from _schemas(folder)
    for operator, partition, store in stores:
        bad = store.bad(version)
        if bad is not None:
            yield Finding(
                code="HR516",
                where=Where(file=str(bad.file)),
                what=f"a file of the state after batch {bad.version - 1} is unusable ({operator.name}, operator "
                f"{operator.number}, partition {partition}): {bad.why}; batch {version} begins with this state",
                fix=_fix(bad, version, committed, stores),
            )


def _fix(bad: Bad, version: int, committed: int | None, stores: list[tuple[StateOperator, int, Store]]) -> str:
    if bad.without:
        return f"delete it and .{bad.file.name}.crc beside it: the files before and after it hold the same state"
    anew = "restore it from a backup, or reset the query (headrace reset QUERY)"
    # Made again from the state before, the newest committed batch writes the same state once more.
    again = committed is not None and version == committed + 1
    if again and version > 1 and all(store.bad(version - 1) is None for _, _, store in stores):
        return (
            f"delete commits/{committed} and commits/.{committed}.crc in the checkpoint: the next start makes batch "
            f"{committed} again from the state before it, and an exactly-once sink skips its rows; or {anew}"
        )
    if again and version == 1:
        return (
            f"delete commits/0, commits/.0.crc and the directory state in the checkpoint: the next start makes batch 0 "
            f"again, and an exactly-once sink skips its rows; or {anew}"
        )
    return anew


def _fault(files: list[Path]) -> str | None:
    """What is wrong with a file; of several attempts at one version Spark's commit names the good one."""
    try:
        faults = [state_fault_of(file) for file in files]
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return None if None in faults else faults[0]


def _schemas(folder: Path) -> Iterator[Finding]:
    """The schemas of an operator's stores, which Spark compares with the query's at each start."""
    for file in (*folder.glob("0/**/_metadata/schema"), *folder.glob("_stateSchema/*/*")):
        if file.name.startswith("."):
            continue
        try:
            fault = fault_of(file)
        except OSError as wrong:
            fault = f"it cannot be read: {wrong.strerror}"
        if fault is None and file.read_bytes()[2:3] != b"v":
            fault = "it does not begin with a version"
        if fault is not None:
            yield Finding(
                code="HR517",
                where=Where(file=str(file)),
                what=f"the schema of the state of operator {folder.name} is unusable: {fault}",
                fix="restore it from a backup, or reset the query (headrace reset QUERY)",
            )


def _metadata_missing(folder: Path) -> Finding:
    return Finding(
        code="HR517",
        where=Where(file=str(folder / "_metadata" / "metadata")),
        what=f"the description of state operator {folder.name} is missing, so that it is not known how many "
        "partitions its state has",
        fix="restore the file from a backup, or reset the query (headrace reset QUERY)",
    )
