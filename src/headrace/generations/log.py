"""The log of a query's generations: which directory is live, which change is under way, and what lies in a directory.

Numbered records, each written once; the newest holds the whole standing. A directory never moves: a change makes
another one, and the record that closes it says that this one is live.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeAlias

from headrace.contract import Mark
from headrace.errors import CheckpointError, Fenced, Finding, HeadraceError, LeaseLost, PlatformError, Where
from headrace.storage import json_record, numbered
from headrace.storage.durable import copy_file, link, names_in, remove_tree, replace_file
from headrace.storage.numbered import file_of
from headrace.storage.private import writing_to

FOLDER = "log"
ChangeName: TypeAlias = Literal["adopt", "rebuild", "repair", "reset", "rewind"]
Kind: TypeAlias = Literal["begun", "building", "intent", "done", "undoing", "undone", "discarding", "discarded"]
# Over these no query starts: checkpoint and result may not fit.
_BETWEEN: tuple[Kind, ...] = ("intent", "undoing")
_OPEN: tuple[Kind, ...] = (*_BETWEEN, "building", "discarding")
QUERIES, QUERY_FILE = "queries", "query.json"


@dataclass(frozen=True, kw_only=True)
class Directory:
    """The directory of a generation, by the number of the record that made it; as text it is its name."""

    generation: int = 1
    made: int = 1

    def __str__(self) -> str:
        return f"g{self.generation}.{self.made}"

    @classmethod
    def parse(cls, name: str) -> Directory | None:
        """The directory of this name; None: it is not a generation's."""
        generation, _, made = name[1:].partition(".")
        if name[:1] != "g" or not (generation.isdigit() and made.isdigit()):
            return None
        return cls(generation=int(generation), made=int(made))


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """One record, with all that stands since.

    number: 0 for one that is not written yet. tokens: those of the records before it, by number. at: when it was
    written. change: the one that it is about; "" for the first. of: the number of that change's first record. begun:
    when that was written. target: the directory that is live once the change is done. facts: what the change needs to
    be ended or undone. live: the directory that a start continues. kept: those that changes have put out of use, the
    oldest first. building: that of a rebuild. following: the number of the next generation. before: the record of the
    change that was done last before this one. restoring: the directory in which a start plans batches again that the
    live one has lost; without a record that follows it was cut off, and counts for nothing.
    """

    number: int = 0
    token: str = ""
    tokens: Mapping[str, str] = field(default_factory=dict, compare=False)
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
        return Mark(number=self.number, token=self.token, of=self.of, way=way, tokens=self.tokens)

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
    tokens = {**({str(record.number): record.token} if record.number else {}), **record.tokens}
    record = replace(record, number=number, token=uuid.uuid4().hex, tokens=tokens, at=now, of=of)
    record = replace(record, begun=record.begun or now)
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
    return _facts(replace(record, tokens={}))


def _record_of(facts: Any) -> LogRecord:
    if facts["form"] != 1:
        raise ValueError(f"it has form {facts['form']}, which a later version has written")

    def directory(name: str | None) -> Directory | None:
        parsed = None if name is None else Directory.parse(name)
        if name is not None and parsed is None:
            raise ValueError(f"'{name}' is not a directory of a generation")
        return parsed

    facts = {"restoring": None, "tokens": {}, **facts}
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


class _InHome:
    """A file or a directory of a generation, by its name in the generation's own directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, layout: QueryLayout, owner: type[QueryLayout]) -> Path:
        return layout.home / self._name


@dataclass(frozen=True, kw_only=True)
class QueryLayout:
    """The places of one generation of one query below the storage directory.

    query: its name now. directory: of the query, for ever. query_id: "" before its first start. made: the number of the
    record of the query's log that made this directory of the generation.
    """

    storage: Path
    query: str
    directory: str
    query_id: str
    generation: int = 1
    made: int = 1
    # The newest one of the log when this was read.
    record: LogRecord | None = field(default=None, compare=False, repr=False)

    archive = _InHome("archive.jsonl")  # Offsets and watermarks of every batch, kept longer than Spark keeps them.
    archive_segments = _InHome("archive")  # Its older lines.
    manifest = _InHome("manifest.jsonl")  # The forms that the query has had, each with its first batch.
    # The versions of the query's code, settings and plan for people to read, each with its first batch.
    versions = _InHome("versions.jsonl")
    sink = _InHome("sink.json")  # Where the sink of this checkpoint writes.
    # The changes of the number of state partitions, each with the batch that it took.
    repartitions = _InHome("repartitions.jsonl")
    # The versions of the tables that are recomputed while the query runs, one directory for each table.
    tables = _InHome("tables")
    table_record = _InHome("tables.jsonl")  # Which versions of its tables the query used, each with its first batch.
    counters = _InHome("counters.jsonl")  # What the query's counters have come to with each batch.
    quarantine = _InHome("quarantine")  # Rows that were quarantined, one file for each source and batch.
    adoption = _InHome("adopted.json")  # Which checkpoint of another program this generation continues.
    plan = _InHome("plan.txt")  # The plans of the first batch of the newest start, as Spark gives them.
    source_names = _InHome("sources.json")  # What Spark calls each source of the query.
    made_by = _InHome("made.json")  # Of a directory that a change has made: by which record, once it is complete.
    former_batches = _InHome("history.json")  # What the history had of the batches that a rewind takes back.

    @property
    def folder(self) -> Path:
        """The directory of the query, which all its generations share."""
        return self.storage / QUERIES / self.directory

    @property
    def place(self) -> Directory:
        """The generation's own directory, by its name in the query's log."""
        return Directory(generation=self.generation, made=self.made)

    @property
    def home(self) -> Path:
        return self.folder / str(self.place)

    @property
    def head(self) -> Mark | None:
        """What the sink compares with the newest change that it has seen."""
        return None if self.record is None else self.record.mark("start")

    def at(self, directory: Directory) -> QueryLayout:
        """The places in another directory of the query."""
        return replace(self, generation=directory.generation, made=directory.made)

    @property
    def late(self) -> Path:
        """Rows that were dropped as late, one file for each batch that dropped any, for the query that takes them."""
        return self.folder / "late" / f"g{self.generation}"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint directory."""
        return self.home / "checkpoint"


def rebuild_storage(storage: Path, layout: QueryLayout) -> Path:
    """Where the rebuild of a query keeps its history, on this machine."""
    return storage / "rebuild" / layout.directory


def history_file(storage: Path) -> Path:
    """The history store of a project: progress, runs, verdicts."""
    return storage / "history.db"


def log_of(layout: QueryLayout) -> LogRecord | None:
    """The newest record of the query's log; None before its first start.

    Raises CheckpointError where it cannot be read, and where the query is registered and its directory is gone.
    """
    record = read_log(layout.folder)
    if record is None and layout.query_id:
        with suppress(PermissionError):  # The writer reports it.
            if not (layout.folder / QUERY_FILE).exists():
                raise lost_directory(layout.storage, layout.directory, layout.query)
    return record


def newest_of(layout: QueryLayout) -> QueryLayout:
    """Where the generation lies that the query runs as, or would begin. Raises CheckpointError."""
    record = log_of(layout)
    return layout if record is None else replace(layout.at(record.live), record=record)


def copy_directory(layout: QueryLayout, new: QueryLayout, *, batch: int | None = None) -> None:
    """Copy what a generation keeps next to its checkpoint into `new`, which is made again. Raises OSError.

    batch: rows that later batches have quarantined are left out.
    """
    remove_tree(new.home)
    new.home.mkdir(parents=True, mode=0o700)
    for file in sorted(layout.home.iterdir()):
        if file.is_file() and file.name not in (new.made_by.name, new.former_batches.name):
            copy_file(file, new.home / file.name)
    for version in sorted(layout.tables.rglob("*")):
        if version.is_file():
            link(version, new.tables / version.relative_to(layout.tables))
    for file in sorted(layout.quarantine.rglob("*")):
        if file.is_file() and (batch is None or (file.stem.isdigit() and int(file.stem) <= batch)):
            (new.quarantine / file.relative_to(layout.quarantine)).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            copy_file(file, new.quarantine / file.relative_to(layout.quarantine))
    for segment in sorted(layout.archive_segments.iterdir()) if layout.archive_segments.is_dir() else ():
        link(segment, new.archive_segments / segment.name)


def replace_live(layout: QueryLayout, record: LogRecord, make: Callable[[QueryLayout], None]) -> None:
    """Let another directory of the same generation be live, in which `make` makes the checkpoint.

    A process that has written a record since `record` was read has the next number, and keeps this one from it. Raises
    CheckpointError if `make` does: then all is as before. Raises LeaseLost and PlatformError.
    """
    own = Directory(generation=layout.generation, made=record.number + 1)
    record = append(layout.folder, layout.query, replace(record, restoring=own))
    new = layout.at(own)
    with writing_to(layout.checkpoint, called="checkpoint"):
        copy_directory(layout, new)
        make(new)
        enter_made(new, record)
    record = append(layout.folder, layout.query, record.with_restored(layout.place))
    with suppress(HeadraceError, OSError):
        remove_unreachable(layout.folder, record)


def enter_made(layout: QueryLayout, record: LogRecord) -> None:
    """Keep that a directory that a change has made is complete, with the record that made it. Raises OSError."""
    replace_file(layout.made_by, json.dumps(_facts(record)) + "\n")


def lost_changes(layout: QueryLayout) -> Iterator[LogRecord]:
    """Yield the changes that the log lacks, since it is an older copy, by the directories that they have completed."""
    head = 0 if layout.record is None else layout.record.number
    with suppress(HeadraceError, OSError):
        for directory in filter(None, map(Directory.parse, names_in(layout.folder))):
            file, record = layout.at(directory).made_by, None
            with suppress(CheckpointError):
                record = json_record.read(file, _record_of, _damage(file))
            if record is not None and record.number > head and (record.kind, record.target) == ("intent", directory):
                yield record


def find_lost(layout: QueryLayout, mark: Mark) -> LogRecord | None:
    """The one of these changes that `mark`, which the sink keeps, is of; None: no directory is known to be its."""
    for record in lost_changes(layout):
        if (record.mark("there").token_of(mark.number), record.of, "there") == (mark.token, mark.of, mark.way):
            return record
    return None


def cut_offs(layout: QueryLayout) -> Iterator[Finding]:
    """Yield the finding for a change that was cut off, by the record of `layout`; the query must not start."""
    record, query = layout.record, layout.query
    if record is None or not record.is_between:
        return
    done, undo = f"a {record.change}", f"; or take it back: headrace change undo {query}"
    if record.kind == "undoing":
        done, undo = f"the undoing of a {record.change}", ""
    elif record.change == "adopt":
        done, undo = "the adoption of a checkpoint", f"; or reset it: headrace reset {query}"
    yield Finding(
        code="HR581",
        where=Where(file=str(file_of(layout.folder / FOLDER, record.number))),
        what=f"{done} of query '{query}' was cut off, so that its checkpoint and its result may not fit",
        fix=f"end it: headrace change resume {query}{undo}",
    )


def require_live(layout: QueryLayout) -> None:
    """Raise Fenced if another process has changed the query since its driver began with `layout`.

    A storage that does not answer is no reason to end: an older driver is refused by the epoch in the sink as well.
    """
    record = None
    with suppress(CheckpointError, PlatformError, OSError):
        record = log_of(layout)
    if record is None or (not record.is_between and layout.place in (record.live, record.building)):
        return
    fault = (
        f"another process has changed query '{layout.query}' since this driver began, which was stopped for longer "
        f"than its lease lasts: its log has record {record.number}; this driver writes nothing more"
    )
    raise Fenced(code="HR409", what=fault, fix=f"look how it stands: headrace status {layout.query}")


def require_ended(layout: QueryLayout) -> None:
    """Raise CheckpointError if a change was cut off, as the log is now."""
    if findings := tuple(cut_offs(newest_of(layout))):
        raise CheckpointError(findings)


def rebuilding(layout: QueryLayout) -> Iterator[Finding]:
    """Yield why nothing but its rebuild may change the query, by the record of `layout`."""
    record = layout.record
    if record is not None and record.building is not None and not record.is_between:
        yield Finding(
            code="HR571",
            where=Where(file=str(file_of(layout.folder / FOLDER, record.number))),
            what=f"a rebuild of query '{layout.query}' was begun at {record.begun}, which makes its generation "
            f"{record.building.generation}",
            fix=f"end it: headrace change resume {layout.query}; or give it up: headrace change discard {layout.query}",
        )


def lost_directory(storage: Path, directory: str, query: str) -> CheckpointError:
    """That the directory of a registered query is gone."""
    place = storage / QUERIES / directory
    why = f"the register names {place} as the directory of query '{query}', and that is not there"
    return CheckpointError(unclear_storage(storage, why))


def unclear_storage(storage: Path, why: str) -> Finding:
    fix = "restore the whole storage from one backup; if only its register is lost: headrace change register; if the "
    fix += "results are to begin from scratch, empty the storage and what the sinks hold"
    fault = f"the storage {storage} does not say which query is which: {why}; a start would write every row again"
    return Finding(code="HR585", where=Where(file=str(storage)), what=fault, fix=fix)
