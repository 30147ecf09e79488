"""The log of a query's generations: which directory is live, and which change of the query is under way.

Numbered records, each written once; the newest holds the whole standing. A directory never moves: a change makes
another one, and the record that closes it says that this one is live.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeAlias

from headrace.contract import Mark
from headrace.errors import CheckpointError, LeaseLost
from headrace.storage import json_record, numbered
from headrace.storage.durable import names_in, remove_tree
from headrace.storage.private import writing_to

FOLDER = "log"
ChangeName: TypeAlias = Literal["adopt", "rebuild", "repair", "reset", "rewind"]
Kind: TypeAlias = Literal["begun", "building", "intent", "done", "undoing", "undone", "discarding", "discarded"]
# Over these no query starts: checkpoint and result may not fit.
_BETWEEN: tuple[Kind, ...] = ("intent", "undoing")
_OPEN: tuple[Kind, ...] = (*_BETWEEN, "building", "discarding")


@dataclass(frozen=True, kw_only=True)
class Directory:
    """The directory of a generation, by the number of the record that made it; as text it is its name."""

    generation: int = 1
    made: int = 1

    def __str__(self) -> str:
        return f"g{self.generation}.{self.made}"

    @classmethod
    def parse(cls, name: str) -> Directory | None:
        """The directory of this name; None: it is no generation's."""
        generation, _, made = name[1:].partition(".")
        if name[:1] != "g" or not (generation.isdigit() and made.isdigit()):
            return None
        return cls(generation=int(generation), made=int(made))


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """One record, with all that stands since.

    number: 0 for one that is not written yet. at: when it was written. change: the one that it is about; "" for the
    first. of: the number of that change's first record. begun: when that was written. target: the directory that is
    live once the change is done. facts: what the change needs to be ended or undone. live: the directory that a start
    continues. kept: those that changes have put out of use, the oldest first. building: that of a rebuild. following:
    the number of the next generation. before: the record of the change that was done last before this one. restoring:
    the directory in which a start plans batches again that the live one has lost; without a record that follows it was
    cut off, and counts for nothing.
    """

    number: int = 0
    token: str = ""
    at: str = ""
    kind: Kind = "begun"
    change: ChangeName | Literal[""] = ""
    of: int = 0
    begun: str = ""
    target: Directory | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    live: Directory = Directory()
    kept: tuple[Directory, ...] = ()
    building: Directory | None = None
    following: int = 2
    before: Mapping[str, Any] | None = None
    restoring: Directory | None = None

    @property
    def is_between(self) -> bool:
        """Whether a change was cut off, so that checkpoint and result may not fit."""
        return self.kind in _BETWEEN

    @property
    def is_open(self) -> bool:
        """Whether a change is under way, so that no other begins."""
        return self.kind in _OPEN

    @property
    def former(self) -> Directory | None:
        """What was live before the change."""
        return Directory.parse(str(self.facts.get("former")))

    @property
    def settled(self) -> LogRecord | None:
        """The record of the change that was done last and can be taken back; None: there is none."""
        if self.kind == "done":
            return self
        return None if self.before is None or self.is_open or self.kind == "discarded" else _record_of(self.before)

    @property
    def current(self) -> LogRecord | None:
        """The change that is under way, or can be taken back."""
        return self if self.is_open else self.settled

    def mark(self, way: Literal["start", "there", "back", "discard"]) -> Mark:
        """What the sink compares with the newest change that it has seen."""
        return Mark(number=self.number, token=self.token, of=self.of, way=way)

    def is_reachable(self, directory: Directory) -> bool:
        """Whether a start or a command may still use a directory, which may be one that a later record makes."""
        used = (self.live, self.building, self.target, self.restoring, *self.kept)
        return directory.made > self.number or directory in used

    def with_restored(self, lost: Directory) -> LogRecord:
        """The record with the directory that was restored wherever it names the one that had `lost` batches."""
        facts = _with_name({**_facts(self), "restoring": None}, str(lost), str(self.restoring))
        return _record_of(facts)


def read_log(folder: Path) -> LogRecord | None:
    """The newest record of the query whose directory is `folder`; None before its first start.

    Raises CheckpointError for a record that cannot be read, and for a log that is lost.
    """
    record = numbered.read_newest(folder / FOLDER, _record_of, _damage)
    if record is not None:
        return record
    try:
        names = names_in(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # The writer reports it.
        return None
    if used := next((name for name in names if Directory.parse(name)), None):
        # The first start of all may have written it meanwhile.
        record = numbered.read_newest(folder / FOLDER, _record_of, _damage)
        if record is None:
            raise _damage(folder / FOLDER)(f"it is not there, and {used} is")
    return record


def begin(folder: Path, directory: Directory = Directory()) -> LogRecord:
    """The newest record of the query, whose log is begun where there is none. Raises PlatformError, CheckpointError."""
    while (record := read_log(folder)) is None:
        with writing_to(folder):
            (folder / FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
            numbered.create(folder / FOLDER, 1, _facts(LogRecord(live=directory, following=directory.generation + 1)))
    return record


def append(folder: Path, query: str, record: LogRecord) -> LogRecord:
    """Write the record that follows `record.number`. Raises LeaseLost if another process has written it."""
    now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
    number = record.number + 1
    of = record.of or number
    record = replace(record, number=number, token=uuid.uuid4().hex, at=now, of=of, begun=record.begun or now)
    with writing_to(folder):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
        if numbered.create(folder / FOLDER, number, _facts(record)):
            return record
    fault = (
        f"another process has changed query '{query}' since this one has looked, which was stopped for longer than its "
        f"lease lasts or came second: its log has record {number}"
    )
    raise LeaseLost(code="HR526", what=fault, fix=f"look how it stands: headrace status {query}")


def remove_unreachable(folder: Path, record: LogRecord) -> None:
    """Delete the directories of generations that nothing leads to any more. Raises PlatformError."""
    with writing_to(folder):
        for name in names_in(folder):
            directory = Directory.parse(name)
            if directory is not None and not record.is_reachable(directory):
                remove_tree(folder / name)


def _facts(record: LogRecord) -> dict[str, Any]:
    facts = {**asdict(record), "form": 1}
    for name in ("target", "live", "building", "restoring"):
        facts[name] = None if getattr(record, name) is None else str(getattr(record, name))
    return {**facts, "kept": [str(directory) for directory in record.kept]}


def _with_name(value: Any, old: str, new: str) -> Any:
    """The value with a directory's new name in place of its old one, however deep."""
    if isinstance(value, Mapping):
        return {key: _with_name(entry, old, new) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_with_name(entry, old, new) for entry in value]
    return new if value == old else value


def as_facts(record: LogRecord) -> Mapping[str, Any]:
    """The record as a later one keeps it in `before`."""
    return _facts(record)


def _record_of(facts: Any) -> LogRecord:
    if facts["form"] != 1:
        raise ValueError(f"it has form {facts['form']}, which a later version has written")

    def directory(name: str | None) -> Directory | None:
        parsed = None if name is None else Directory.parse(name)
        if name is not None and parsed is None:
            raise ValueError(f"'{name}' is no directory of a generation")
        return parsed

    facts = {"restoring": None, **facts}
    own = {name: facts[name] for name in LogRecord.__dataclass_fields__}
    kept = tuple(filter(None, map(directory, facts["kept"])))
    live = directory(facts["live"])
    if live is None:
        raise ValueError("it names no live directory")
    others = {name: directory(facts[name]) for name in ("target", "building", "restoring")}
    return LogRecord(**{**own, **others, "live": live, "kept": kept})


def _damage(file: Path) -> json_record.Damaged:
    fault = "the newest record of the query's log, which says which of its directories is live, cannot be read"
    fix = "restore it from a backup of the same time; an older record must not be used in its place"
    return json_record.Damaged(file=file, code="HR584", what=fault, fix=fix, error=CheckpointError)
