"""Whether the files of a checkpoint exist and hold what was written, above all those of its state."""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.checkpoint.directory import (
    DEFAULT_STORE,
    RESTORE,
    CommitEntry,
    Part,
    StateOperator,
    checksum_of,
    numbered_files,
    state_operator,
    text_of,
)
from headrace.errors import CheckpointError, Finding, Where, reason
from headrace.storage.remote import store_at

# The whole content of larger files is left to Spark, which reads it all: a start must not take longer for it.
WHOLE_BYTES = 1024 * 1024
_HEADER = struct.Struct(">4sI")
_LZ4 = b"LZ4Block"
_LZ4_END_BYTES = 21
_CODECS = (_LZ4, b"\x28\xb5\x2f\xfd", b"\x82SNAPPY\x00", b"ZV")
_FILE = re.compile(r"(?P<version>\d+)(?:_(?P<id>[^.]+))?\.(?P<kind>zip|changelog|delta|snapshot)")
_SNAPSHOTS = {"changelog": "zip", "delta": "snapshot"}


def fault_of(file: Path) -> str | None:
    """What is wrong with an existing file; None if it looks whole."""
    if store_at(file).is_safe:
        return None
    size = file.stat().st_size
    if size == 0:
        return "it is empty"
    checksums = _checksums_of(file)
    if checksums is not None and len(range(0, size, checksums[0])) != len(checksums[1]):
        return f"its {size} bytes are not as many as were written"
    if size <= WHOLE_BYTES:
        data = file.read_bytes()
        if checksums is not None:
            chunks = (data[start : start + checksums[0]] for start in range(0, len(data), checksums[0]))
            if not all(zlib.crc32(chunk) == wanted for chunk, wanted in zip(chunks, checksums[1], strict=True)):
                return "its content is not what was written, as the checksum next to it shows"
    return None


def _checksums_of(file: Path) -> tuple[int, tuple[int, ...]] | None:
    """Hadoop's checksums of a local file: the bytes of a chunk, and the CRC-32 of each; None without such."""
    try:
        data = checksum_of(file).read_bytes()
    except OSError:
        return None
    if len(data) < _HEADER.size:
        return None
    magic, chunk_bytes = _HEADER.unpack_from(data)
    if magic != b"crc\0" or chunk_bytes <= 0:
        return None
    count = (len(data) - _HEADER.size) // 4
    return chunk_bytes, struct.unpack_from(f">{count}I", data, _HEADER.size)


def _stream_fault(file: Path) -> str | None:
    """A compressed stream begins as its codec writes it; that of lz4 ends with a block of no bytes."""
    with file.open("rb") as stream:
        head = stream.read(len(_LZ4))
        if not head.startswith(_CODECS):
            return "it does not begin as Spark writes such files"
        if head == _LZ4:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - _LZ4_END_BYTES, 0))
            end = stream.read()
            if not end.startswith(_LZ4) or any(end[len(_LZ4) + 1 :]):
                return "it is cut off"
    return None


def _zip_fault(file: Path) -> str | None:
    try:
        with file.open("rb") as opened, zipfile.ZipFile(opened) as archive:
            broken = archive.testzip() if file.stat().st_size <= WHOLE_BYTES else None
            if broken is not None:
                return f"its part {broken} is damaged"
            facts = json.loads(archive.read("metadata").split(b"\n", 1)[1])
            parts = [(file.parent / "SSTs" / str(part["dfsSstFileName"]), part) for part in facts.get("sstFiles", ())]
            parts += [(file.parent / "logs" / str(part["dfsLogFileName"]), part) for part in facts.get("logFiles", ())]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        return f"it cannot be unpacked: {reason(error)}"
    except (ValueError, KeyError, IndexError, TypeError):
        return "it does not say which files it is made of"
    for part, facts in parts:
        needed = f"{part.parent.name}/{part.name}, which it needs,"
        if not part.exists():
            return f"{needed} is missing"
        if part.stat().st_size != facts["sizeBytes"]:
            return f"{needed} has {part.stat().st_size} bytes in place of {facts['sizeBytes']}"
        if (fault := fault_of(part)) is not None:
            return f"{needed} is damaged: {fault}"
    return None


def version_of(name: str) -> int | None:
    """The version of the state that a file of this name, or its checksum, belongs to; None: to none."""
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
class Attempts:
    """Which attempts at batches the commits of a checkpoint name; each commit is read once, and only when asked for."""

    root: Path
    _commits: dict[int, CommitEntry | None] = field(default_factory=dict)

    def commit_before(self, version: int) -> Path:
        """The commit that names the files of a version."""
        return self.root / Part.COMMITS / str(version - 1)

    def ids(self, version: int, operator: int, partition: int) -> frozenset[str]:
        """The ids of the files of a version in one partition; none where that is not known."""
        if version not in self._commits:
            self._commits[version] = self._read(self.commit_before(version))
        commit = self._commits[version]
        partitions = commit.state_ids.get(operator, ()) if commit is not None else ()
        return partitions[partition] if partition < len(partitions) else frozenset()

    def _read(self, file: Path) -> CommitEntry | None:
        # The look at the commits reports a damaged one.
        with suppress(CheckpointError):
            text = text_of(file)
            return None if text is None else CommitEntry.parse(int(file.name), text, file)
        return None


@dataclass(frozen=True)
class StateStoreFiles:
    """One store of one partition. Version N is what it held when batch N began.

    In Spark's first format a file is named after its version, so that several attempts at a batch write the same one.
    In the second each has an id as well, and the commit of the batch says whose file counts.
    """

    folder: Path
    attempts: Attempts
    operator: int
    partition: int
    snapshots: dict[int, list[Path]] = field(default_factory=dict)
    changes: dict[int, list[Path]] = field(default_factory=dict)

    def read(self) -> StateStoreFiles:
        """The same with the files that are there; none if the folder is not."""
        for file in self.folder.iterdir() if self.folder.is_dir() else ():
            if (match := _FILE.fullmatch(file.name)) is not None:
                files = self.changes if match["kind"] in _SNAPSHOTS else self.snapshots
                files.setdefault(int(match["version"]), []).append(file)
        return self

    def bad(self, version: int) -> Bad | None:
        """The first file that is missing or damaged of those that make up `version`: a snapshot and what came after."""
        commit = self.attempts.commit_before(version)
        if any(map(_id_of, self.changes.get(version, ()))) and not commit.exists():
            return Bad(file=commit, version=version, why="it is missing, and says which files count")
        counting = (n for n in sorted(self.snapshots, reverse=True) if n <= version and self._of(self.snapshots, n))
        base = next(counting, 0)
        if base and (fault := _fault(self._of(self.snapshots, base))) is not None:
            earlier = replace(self, snapshots={n: files for n, files in self.snapshots.items() if n < base})
            without = earlier.bad(version) is None
            return Bad(file=self._of(self.snapshots, base)[0], version=base, why=fault, without=without)
        for number in range(base + 1, version + 1):
            files = self._of(self.changes, number)
            if not files:
                return Bad(file=self.folder / self._name(number), version=number, why="it is missing")
            if (fault := _fault(files)) is not None:
                return Bad(file=files[0], version=number, why=fault)
        return None

    def _ids(self, version: int) -> frozenset[str]:
        return self.attempts.ids(version, self.operator, self.partition)

    def _of(self, files: dict[int, list[Path]], version: int) -> list[Path]:
        """The files of a version that count: those of attempts that its commit does not name do not."""
        written = files.get(version, [])
        ids = self._ids(version) if any(map(_id_of, written)) else None
        return [file for file in written if _id_of(file) in ids] if ids else written

    def _name(self, version: int) -> str:
        """What the file of a version's changes is called, as far as it is known."""
        ids = sorted(self._ids(version))
        named = "" if not ids else f"_{ids[0]}" if len(ids) == 1 else "_*"
        return f"{version}{named}.{self._kind}"

    @property
    def _kind(self) -> str:
        names = {file.suffix for files in (*self.changes.values(), *self.snapshots.values()) for file in files}
        return "delta" if names & {".delta", ".snapshot"} else "changelog"


def state_problems(root: Path, version: int, committed: int | None, partitions: int | None) -> Iterator[Finding]:
    """What is wrong with the state of the checkpoint `root` that batch `version` begins with.

    partitions: how many there are, where Spark's own metadata no longer says it.
    """
    folders = (
        [root / Part.STATE / str(number) for number in sorted(numbered_files(root / Part.STATE))] if version else []
    )
    stores: list[tuple[StateOperator, StateStoreFiles]] = []
    attempts = Attempts(root)
    for folder in folders:
        try:
            operator = state_operator(folder)
        except CheckpointError as error:
            yield from error.findings
            continue
        if operator is None:
            yield Finding(
                code="HR516",
                where=Where(file=str(folder / "_metadata" / "metadata")),
                what=f"the description of state operator {folder.name} is missing, so that it is not known how many "
                "partitions its state has",
                fix=RESTORE,
            )
            continue
        stores += [(operator, store) for store in stores_in(folder, operator, partitions, attempts)]
        yield from _schemas(folder)
    reported: set[Path] = set()
    for operator, store in stores:
        bad = store.bad(version)
        if bad is not None and bad.file not in reported:
            reported.add(bad.file)
            yield Finding(
                code="HR516",
                where=Where(file=str(bad.file)),
                what=f"a file of the state after batch {bad.version - 1} is unusable ({operator.name}, operator "
                f"{operator.number}, partition {store.partition}): {bad.why}; batch {version} begins with this state",
                fix=_fix(bad, version, committed, stores),
            )


def stores_in(
    folder: Path, operator: StateOperator, partitions: int | None, attempts: Attempts
) -> Iterator[StateStoreFiles]:
    """The stores of one operator, whose state is in `folder`; `partitions` as in `state_problems`."""
    for partition in range(partitions or operator.partitions):
        home = folder / str(partition)
        for name in operator.stores:
            place = home if name == DEFAULT_STORE else home / name
            yield StateStoreFiles(place, attempts, operator.number, partition).read()


def _fix(bad: Bad, version: int, committed: int | None, stores: list[tuple[StateOperator, StateStoreFiles]]) -> str:
    if bad.without:
        return f"delete it and .{bad.file.name}.crc next to it: the files before and after it hold the same state"
    # Made again from the state before, the newest committed batch writes the same state once more.
    again = committed is not None and version == committed + 1
    if again and version > 1 and all(store.bad(version - 1) is None for _, store in stores):
        return (
            f"delete commits/{committed} and commits/.{committed}.crc in the checkpoint: the next start makes batch "
            f"{committed} again from the state before it, and an exactly-once sink skips its rows; or {RESTORE}"
        )
    if again and version == 1:
        return (
            f"delete commits/0, commits/.0.crc and the directory state in the checkpoint: the next start makes batch 0 "
            f"again, and an exactly-once sink skips its rows; or {RESTORE}"
        )
    return RESTORE


def _id_of(file: Path) -> str | None:
    match = _FILE.fullmatch(file.name)
    return None if match is None else match["id"]


def _fault(files: list[Path]) -> str | None:
    """What is wrong with a file; of several attempts of which none is named, one that is whole will do."""
    try:
        # Of a store's own files, and of those that a snapshot names.
        faults = [
            fault_of(file) or (_zip_fault(file) if file.suffix == ".zip" else _stream_fault(file)) for file in files
        ]
    except OSError as error:
        return f"it cannot be read: {reason(error)}"
    return None if None in faults else faults[0]


def _schemas(folder: Path) -> Iterator[Finding]:
    """The schemas of an operator's stores, which Spark compares with the query's at each start."""
    for file in (*folder.glob("0/**/_metadata/schema"), *folder.glob("_stateSchema/*/*")):
        if file.name.startswith("."):
            continue
        try:
            fault = fault_of(file)
        except OSError as wrong:
            fault = f"it cannot be read: {reason(wrong)}"
        if fault is None and file.read_bytes()[2:3] != b"v":
            fault = "it does not begin with a version"
        if fault is not None:
            yield Finding(
                code="HR516",
                where=Where(file=str(file)),
                what=f"the schema of the state of operator {folder.name} is unusable: {fault}",
                fix=RESTORE,
            )
