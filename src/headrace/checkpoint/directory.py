"""Spark's checkpoint directory as Python values, without a JVM: its logs, their entries, its operators of state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, Finding, Where, reason
from headrace.storage import durable
from headrace.units import instant

_LISTINGS = 5
COMPACT = ".compact"
RESTORE = "restore it from a backup, or reset the query (headrace reset QUERY)"
DEFAULT_STORE = "default"
_VERSIONS = (1, 2)
_NO_OFFSET = "-"
_FACTS = ("batchWatermarkMs", "batchTimestampMs", "conf")


@dataclass(frozen=True)
class Checkpoint:
    """A query's checkpoint; nothing is cached, so that a running query may be looked at again and again.

    Whatever cannot be read raises CheckpointError, save what Spark purges between a listing and a reading.
    """

    root: Path

    @property
    def id(self) -> str | None:
        """The query's id for life, or None before its first start."""
        file = self.root / Part.ID_FILE
        text = text_of(file)
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise broken_file(file, "it does not hold the query's id") from error

    @property
    def last_batch(self) -> int | None:
        """The newest batch that was planned, done or not."""
        return max(numbered_files(self.root / Part.OFFSETS), default=None)

    @property
    def last_committed(self) -> int | None:
        """The newest batch that Spark has marked as done."""
        return max(numbered_files(self.root / Part.COMMITS), default=None)

    @property
    def conf(self) -> Mapping[str, str]:
        """The settings that Spark keeps with the newest batch."""
        newest = self.last_batch
        entry = None if newest is None else self.offset(newest)
        return {} if entry is None else entry.conf

    @property
    def commit_version(self) -> int | None:
        """The version of the newest commit that can be read: of a damaged one a start makes the batch again."""
        for batch in reversed(self.commit_numbers()):
            with suppress(CheckpointError):
                if (commit := self.commit(batch)) is not None:
                    return commit.version
        return None

    def offset_numbers(self) -> tuple[int, ...]:
        """The batches whose plans Spark still keeps, in order."""
        return tuple(numbered_files(self.root / Part.OFFSETS))

    def commit_numbers(self) -> tuple[int, ...]:
        """The batches whose marks that they are done Spark still keeps, in order."""
        return tuple(numbered_files(self.root / Part.COMMITS))

    def offset(self, batch: int) -> OffsetEntry | None:
        """What was planned for one batch, or None."""
        file = self.root / Part.OFFSETS / str(batch)
        text = text_of(file)
        return None if text is None else OffsetEntry.parse(batch, text, file)

    def commit(self, batch: int) -> CommitEntry | None:
        """The mark that one batch is done, or None."""
        file = self.root / Part.COMMITS / str(batch)
        text = text_of(file)
        return None if text is None else CommitEntry.parse(batch, text, file)

    def offsets(self) -> dict[int, OffsetEntry]:
        """The offsets of each batch that Spark still keeps, in order."""
        entries = ((batch, self.offset(batch)) for batch in numbered_files(self.root / Part.OFFSETS))
        return {batch: entry for batch, entry in entries if entry is not None}

    def commits(self) -> dict[int, CommitEntry]:
        """The marks of the batches that are done, as far as Spark still keeps them, in order."""
        entries = ((batch, self.commit(batch)) for batch in numbered_files(self.root / Part.COMMITS))
        return {batch: entry for batch, entry in entries if entry is not None}

    def source_names(self) -> tuple[str, ...]:
        """The sources that keep a log of their own here."""
        folder = self.root / Part.SOURCES
        return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()

    def source_log(self, name: str) -> dict[int, tuple[str, ...]]:
        """The log of a source, by its own numbers, with compacted files unfolded by the batchId of each line.

        File source: one JSON line for each file. Rate source: entry 0 holds its creation time in milliseconds.
        """
        folder = self.root / Part.SOURCES / name
        for _ in range(_LISTINGS):
            log = _unfold(numbered_files(folder))
            if log is not None:
                return log
        raise CheckpointError(
            code="HR509",
            what=f"the log of source '{name}' lost files while it was read, {_LISTINGS} times in a row",
            fix="try again; if the query is not running, look whether the directory is whole",
        )

    @property
    def is_stateful(self) -> bool:
        """Whether the query keeps state, so that Spark needs every partition of each batch computed."""
        return (self.root / Part.STATE).is_dir()

    def state_operators(self) -> tuple[StateOperator, ...]:
        """The query's stateful operators; none before the first batch, or for a query without state."""
        folder = self.root / Part.STATE
        operators = (state_operator(folder / str(number)) for number in numbered_files(folder))
        return tuple(operator for operator in operators if operator is not None)

    def state_partitions(self) -> int | None:
        """The number of partitions that the state was written with, or None without state."""
        return max((operator.partitions for operator in self.state_operators()), default=None)


def _unfold(files: dict[int, Path]) -> dict[int, tuple[str, ...]] | None:
    """The entries from the newest compacted file on; None when a file went away meanwhile."""
    first = max((number for number, file in files.items() if file.name.endswith(COMPACT)), default=-1)
    log: dict[int, list[str]] = {}
    for number, file in files.items():
        if number < first:
            continue
        text = text_of(file)
        if text is None:
            return None
        lines = [line for line in body(file, text)[1] if line]
        if number == first:
            for line in lines:
                log.setdefault(_batch_of(file, line, number), []).append(line)
        else:
            log[number] = lines
    return {number: tuple(lines) for number, lines in sorted(log.items())}


def _batch_of(file: Path, line: str, otherwise: int) -> int:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise broken_file(file, f"a line is not JSON: {line[:40]!r}") from error
    batch = value.get("batchId", otherwise) if isinstance(value, dict) else otherwise
    return batch if isinstance(batch, int) else otherwise


class Part:
    """The names of the parts of a checkpoint."""

    ID_FILE = "metadata"
    OFFSETS, COMMITS = "offsets", "commits"  # A file for each batch, planned or done.
    SOURCES = "sources"  # The sources' own logs, by their names.
    STATE = "state"  # The state of each stateful operator, by its number.
    DESCRIPTIONS = ("_metadata", "v2")  # Spark's descriptions in an operator's directory.


def numbered_files(folder: Path) -> dict[int, Path]:
    """The batch files of a log by number, in order; checksums, temporary and other files are left out.

    A missing folder is an empty log. Where both N and N.compact are there, N.compact is meant, as it holds N too.
    """
    files: dict[int, Path] = {}
    try:
        names = durable.names_in(folder)
    except (FileNotFoundError, NotADirectoryError):
        return files
    except OSError as error:
        raise CheckpointError(unreadable_directory(folder, error)) from error
    for name in sorted(names):
        number = name.removesuffix(COMPACT)
        if number.isascii() and number.isdigit():
            files[int(number)] = folder / name
    return dict(sorted(files.items()))


def is_description(inside: Path) -> bool:
    """Whether a path within a checkpoint is one of the files in which Spark describes the stateful operators."""
    return inside.parts[:1] == (Part.STATE,) and inside.parts[2:4] == Part.DESCRIPTIONS


def unreadable_directory(place: Path, error: OSError) -> Finding:
    """The finding for a directory that the system does not let us read."""
    return Finding(
        code="HR540",
        where=Where(file=str(place)),
        what=f"the directory cannot be read: {reason(error)}",
        fix="give the user that runs the query the right to read and write the storage directory",
    )


def text_of(file: Path) -> str | None:
    """The file's text, or None when it is gone, as files of a running query may be at any time."""
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise broken_file(file, f"it cannot be read: {reason(error)}") from error


def body(file: Path, text: str, *, versions: tuple[int, ...] = (1,)) -> tuple[int, list[str]]:
    """The version and the lines after it; raises CheckpointError for an empty file or an unknown version."""
    # Not splitlines: Spark ends lines at \n alone, and a JSON text may hold U+2028 and its like.
    # Before the version, Kafka's log has a zero byte, which Spark 2.1 asked for.
    first, *lines = text.removeprefix("\0").split("\n")
    if not text.strip("\0 \n\r\t"):
        raise broken_file(file, "it is empty")
    digits = first.strip().removeprefix("v")
    if not (first.startswith("v") and digits.isascii() and digits.isdigit()):
        raise broken_file(file, f"its first line is {first[:40]!r} in place of a version")
    if int(digits) not in versions:
        raise CheckpointError(
            code="HR507",
            where=Where(file=str(file)),
            what=f"the file is of version {first.strip()}, and this Headrace reads "
            + " and ".join(f"v{version}" for version in versions),
            fix="upgrade Headrace: the checkpoint was written by a newer Spark",
        )
    return int(digits), lines


def broken_file(file: Path, why: str) -> CheckpointError:
    """The error for a file that a crash of the machine, or a person, has damaged."""
    folder, name = file.parent.name, file.name
    if folder == Part.OFFSETS:
        fix = (
            f"if it is the newest and the sink's ledger does not hold batch {name}, delete it and .{name}.crc: "
            "Spark then plans the batch again; otherwise restore it from a backup, or reset the query (headrace reset "
            "QUERY)"
        )
    elif folder == Part.COMMITS:
        fix = f"delete it and .{name}.crc next to it: Spark then runs the batch again, and the sink skips what it has"
    else:
        fix = RESTORE
    return CheckpointError(
        code="HR503", where=Where(file=str(file)), what=f"a file of the checkpoint is damaged: {why}", fix=fix
    )


def replace_file(file: Path, text: str | None) -> None:
    """Replace a file by `text`, whole: a crash leaves the former text or the new one. Raises OSError.

    None: the file is removed, if it is there.

    Hadoop's checksum of the old text goes first: Hadoop reads a file without a checksum, and refuses one with a wrong
    checksum. The directory is synced between the two, so that no power cut brings the checksum back.
    """
    checksum = checksum_of(file)
    if checksum.exists():
        checksum.unlink(missing_ok=True)
        durable.sync(file.parent)
    if text is not None:
        durable.replace_file(file, text)
        return
    file.unlink(missing_ok=True)
    durable.sync(file.parent)


def checksum_of(file: Path) -> Path:
    """The file in which Hadoop keeps the checksums of a local file."""
    return file.with_name(f".{file.name}.crc")


@dataclass(frozen=True, kw_only=True)
class OffsetEntry:
    """Where each source ends in one batch, and what the batch is computed with.

    watermark_ms: the global watermark in force in the batch; 0: none yet.
    offsets: by the source's name, or by "0", "1", ... in the first format, in the order of the query's plan; the
        source's own JSON text, or None where the source has given nothing yet.
    version: the first names the sources by their order, the second by their names.
    is_continuous: continuous processing has written it, which leaves out all facts about the batch.
    further: facts of the batch that only Spark reads.
    """

    batch: int
    watermark_ms: int = 0
    timestamp_ms: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[str, str | None] = field(default_factory=dict)
    version: int = field(default=2, compare=False)
    is_continuous: bool = field(default=False, compare=False)
    further: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def watermark(self) -> str | None:
        """The watermark as ISO 8601 in UTC; None: none yet."""
        if self.watermark_ms <= 0:
            return None
        return instant(self.watermark_ms / 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @classmethod
    def parse(cls, batch: int, text: str, file: Path) -> OffsetEntry:
        """Read what Spark wrote; raises CheckpointError naming `file`."""
        version, lines = body(file, text, versions=_VERSIONS)
        if not lines:
            raise broken_file(file, "it ends after its first line")
        # Continuous processing leaves the line empty.
        facts = {} if version == 1 and not lines[0] else _json_object(file, lines[0])
        offsets: dict[str, str | None] = {}
        for position, line in enumerate(lines[1:]):
            name, colon, offset = (str(position), ":", line) if version == 1 else line.partition(":")
            if not colon or not offset:
                raise broken_file(file, f"line {position + 3} holds no offset")
            _complete(file, offset)
            offsets[name] = None if offset == _NO_OFFSET else offset
        if not offsets:
            raise broken_file(file, "it ends before the first source's offset")
        return cls(
            batch=batch,
            watermark_ms=_whole(file, facts, "batchWatermarkMs"),
            timestamp_ms=_whole(file, facts, "batchTimestampMs"),
            conf={str(key): str(value) for key, value in (facts.get("conf") or {}).items()},
            offsets=offsets,
            version=version,
            is_continuous=version == 1 and not lines[0],
            further={key: value for key, value in facts.items() if key not in _FACTS},
        )

    def format(self) -> str:
        """The text that Spark reads back as this entry."""
        facts: dict[str, Any] = {
            "batchWatermarkMs": self.watermark_ms,
            "batchTimestampMs": self.timestamp_ms,
            "conf": dict(self.conf),
        }
        facts |= self.further
        lines = [
            f"{'' if self.version == 1 else f'{name}:'}{_NO_OFFSET if offset is None else offset}"
            for name, offset in self.offsets.items()
        ]
        head = "" if self.is_continuous else json.dumps(facts, separators=(",", ":"))
        return "\n".join([f"v{self.version}", head, *lines])


@dataclass(frozen=True, kw_only=True)
class CommitEntry:
    """That a batch is done, and the watermark of the next one.

    version: of the file. state_ids: of the second, the ids in the names of the state's files that the next batch begins
        with: by the operator's number, for each partition those of its stores.
    """

    batch: int
    next_watermark_ms: int = 0
    version: int = field(default=1, compare=False)
    state_ids: Mapping[int, tuple[frozenset[str], ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, batch: int, text: str, file: Path) -> CommitEntry:
        """Read what Spark wrote; raises CheckpointError naming `file`."""
        version, lines = body(file, text, versions=_VERSIONS)
        facts = _json_object(file, lines[0] if lines else "")
        try:
            named = (facts.get("stateUniqueIds") or {}).items()
            ids = {int(operator): tuple(map(frozenset, partitions)) for operator, partitions in named}
        except (ValueError, TypeError, AttributeError) as error:
            raise broken_file(file, "it does not name the files of the state") from error
        watermark_ms = _whole(file, facts, "nextBatchWatermarkMs")
        return cls(batch=batch, next_watermark_ms=watermark_ms, version=version, state_ids=ids)


def _json_object(file: Path, line: str) -> dict[str, Any]:
    if not line.strip():
        return {}
    try:
        value = json.loads(line)
    except ValueError as error:
        raise broken_file(file, f"its second line: {reason(error)}") from error
    if not isinstance(value, dict):
        raise broken_file(file, "its second line is not a JSON object")
    return value


def _whole(file: Path, facts: Mapping[str, Any], key: str) -> int:
    value = facts.get(key, 0)
    if not isinstance(value, int):
        raise broken_file(file, f"{key} is {value!r} in place of a whole number")
    return value


def _complete(file: Path, offset: str) -> None:
    """Refuse an offset that begins as JSON and was cut off; a source may also write plain text."""
    if offset[0] in '{["':
        try:
            json.loads(offset)
        except ValueError as error:
            raise broken_file(file, f"an offset is cut off: {offset[-40:]!r}") from error


@dataclass(frozen=True, kw_only=True)
class StateOperator:
    """One stateful operator of the query: its number, Spark's name for it, its state's partitions, and their stores.

    variables: those of a processor (`transformWithState`), which its state is made of.
    """

    number: int
    name: str
    partitions: int
    stores: tuple[str, ...] = (DEFAULT_STORE,)
    variables: tuple[str, ...] = ()


def state_operator(folder: Path) -> StateOperator | None:
    """The operator whose state is in `folder`, state/N; None without metadata. Raises CheckpointError."""
    metadata = folder / "_metadata"
    newest = max(numbered_files(metadata / "v2").items(), default=None)
    file = newest[1] if newest else metadata / "metadata"
    text = text_of(file)
    if text is None:
        return None
    _, lines = body(file, text, versions=_VERSIONS)
    try:
        facts = json.loads(lines[0])
        stores = facts["stateStoreInfo"]
        return StateOperator(
            number=int(folder.name),
            name=str(facts["operatorInfo"]["operatorName"]),
            partitions=max(int(store["numPartitions"]) for store in stores),
            stores=tuple(str(store.get("storeName", DEFAULT_STORE)) for store in stores),
            variables=tuple(_variables(facts)),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise broken_file(file, "it does not describe a state operator") from error


def _variables(facts: Mapping[str, Any]) -> Iterator[str]:
    """The names of a processor's variables; Spark keeps its timers among them, by names that begin with `$`."""
    properties = json.loads(facts.get("operatorPropertiesJson") or "{}")
    for variable in properties.get("stateVariables", ()):
        if not (name := str(variable["stateName"])).startswith("$"):
            yield name
