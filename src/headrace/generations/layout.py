"""Where each thing of a project lies in its storage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.checkpoint import Archive, Checkpoint
from headrace.contract import Mark
from headrace.errors import CheckFailed
from headrace.generations.log import Directory, LogRecord, read_log
from headrace.generations.register import (
    QUERIES,
    QUERY_FILE,
    Entry,
    Register,
    lost_directory,
    read_register,
    require_known,
)
from headrace.model import Project, Query
from headrace.storage.durable import copy_file, link, remove_tree, replace_file


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
    # The newest record of the log when this was read.
    head: Mark | None = field(default=None, compare=False)

    archive = _InHome("archive.jsonl")  # Offsets and watermarks of every batch, kept longer than Spark keeps them.
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
    return layout if record is None else replace(layout.at(record.live), head=record.mark("start"))


def unused_layouts_of(layout: QueryLayout) -> list[QueryLayout]:
    """What changes have put out of use and keep, the oldest first. Raises CheckpointError."""
    record = log_of(layout)
    return [] if record is None else [layout.at(directory) for directory in record.kept]


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
    closed = Archive(layout.archive).folder
    for segment in sorted(closed.iterdir()) if closed.is_dir() else ():
        link(segment, Archive(new.archive).folder / segment.name)


def enter_made(layout: QueryLayout, parent: QueryLayout, record: LogRecord, batch: int | None) -> None:
    """Keep that a directory that a change has made is complete: by which record, of which other one. Raises OSError."""
    facts = {"number": record.number, "token": record.token, "parent": str(parent.place), "batch": batch}
    replace_file(layout.made_by, json.dumps(facts) + "\n")


def has_run(layout: QueryLayout) -> bool:
    """Whether the query has planned a batch; one that was reset counts too."""
    return Checkpoint(newest_of(layout).checkpoint).last_batch is not None or bool(unused_layouts_of(layout))


def layout_named(storage: Path, query: str, former: Sequence[str] = ()) -> QueryLayout:
    """The first generation of the query of this name, or of that which had one of its `former` names until now.

    Raises CheckpointError and PlatformError, as `read_register`.
    """
    return layout_in(storage, read_register(storage), query, former)


def layout_in(storage: Path, register: Register | None, query: str, former: Sequence[str] = ()) -> QueryLayout:
    """Return what `layout_named` does, by a register that was read."""
    entry = None if register is None else find_entry(storage, register, query, former)
    if entry is None and register is not None:
        require_known(storage, register, query, former)
    return layout_of_entry(storage, query, entry)


def layout_of_entry(storage: Path, query: str, entry: Entry | None) -> QueryLayout:
    """The first generation of a registered query; None: of one whose directory is still to be made."""
    directory, query_id = (query, "") if entry is None else (entry.directory, entry.id)
    return QueryLayout(storage=storage, query=query, directory=directory, query_id=query_id)


def find_entry(storage: Path, register: Register, query: str, former: Sequence[str]) -> Entry | None:
    """What the register knows the query by: its name, or the first of its `former` names that is known.

    What a start by the new name has left that planned no batch gives way to a former name that has run.
    """
    own = register.queries.get(query)
    entries = [register.queries[name] for name in former if name in register.queries]
    if not entries or (own is not None and has_run(layout_of_entry(storage, query, own))):
        return own
    return next((entry for entry in entries if has_run(layout_of_entry(storage, query, entry))), own or entries[0])


def layout_of(project: Project, query: Query) -> QueryLayout:
    """Where the generation lies that a query runs as; for its rebuild, the one that is being built.

    Raises CheckpointError, and CheckFailed for a rebuild that another command has discarded.
    """
    layout = newest_of(layout_named(project.storage, query.name, query.renamed_from))
    if project.rebuilds != query.name:
        return layout
    record = log_of(layout)
    if record is None or record.building is None:
        fault = f"the rebuild of query '{query.name}' is gone: another command has discarded it, or put it in place"
        raise CheckFailed(code="HR526", what=fault, fix=f"look how the query stands: headrace status {query.name}")
    return replace(layout.at(record.building), head=record.mark("start"))
