"""Where each thing of a project lies in its storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.checkpoint import Checkpoint
from headrace.model import Project, Query
from headrace.queries.register import QUERIES, QUERY_FILE, Entry, Register, lost_directory, read_register, require_known
from headrace.storage.durable import names_in

# Where a reset keeps the generations that it sets aside, in a query's directory.
_RESET = "reset"


class _InHome:
    """A file or a directory of a generation, by its name in the generation's own directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, layout: QueryLayout, owner: type[QueryLayout]) -> Path:
        return layout.home / self._name


@dataclass(frozen=True, kw_only=True)
class QueryLayout:
    """The places of one generation of one query below the storage directory.

    query: its name now. directory: of the query, for ever. query_id: "" before its first start.
    """

    storage: Path
    query: str
    directory: str
    query_id: str
    generation: int = 1
    # Below the query's directory, where a reset or a rewind keeps it; the ends of its name and of its checkpoint's.
    below: str = ""
    ending: str = ""
    checkpoint_ending: str = ""

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
    # Rows that were dropped as late, one file for each batch that dropped any, for the query that takes them.
    late = _InHome("late")
    reset = _InHome("reset.json")  # What is being done, or was done, to begin the next generation in place of this one.
    adoption = _InHome("adopted.json")  # Which checkpoint of another program this generation continues.
    plan = _InHome("plan.txt")  # The plans of the first batch of the newest start, as Spark tells them.
    source_names = _InHome("sources.json")  # What Spark calls each source of the query.
    rewound = _InHome("rewound.json")  # The mark of a generation that was rewound: of which rewind it is.

    @property
    def folder(self) -> Path:
        """The directory of the query, which all its generations share."""
        return self.storage / QUERIES / self.directory

    @property
    def home(self) -> Path:
        folder = self.folder / self.below if self.below else self.folder
        return folder / f"g{self.generation}{self.ending}"

    @property
    def rebuild_record(self) -> Path:
        """How far the rebuild of the query is."""
        return self.folder / "rebuild.json"

    @property
    def rewind_record(self) -> Path:
        """Which earlier batch the query is being brought back to, or was, and how far that is."""
        return self.folder / "rewind.json"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint directory."""
        return self.home / f"checkpoint{self.checkpoint_ending}"

    @property
    def staged(self) -> QueryLayout:
        """The same generation while the copy of an adopted checkpoint is not yet in its place."""
        return replace(self, checkpoint_ending=".adopted")

    @property
    def before_rewind(self) -> QueryLayout:
        """The same generation as it was before it was rewound."""
        return replace(self, below="rewind")

    @property
    def after_rewind(self) -> QueryLayout:
        """The same generation as a rewind makes it, beside the one that it will replace."""
        return replace(self, below="rewind", ending=".new")

    @property
    def set_aside(self) -> QueryLayout:
        """The same generation once a reset has moved it out of the way."""
        return replace(self, below=_RESET)


def rebuild_storage(storage: Path, layout: QueryLayout) -> Path:
    """The storage directory of the rebuild of a query, as that of a project with this query alone."""
    return storage / "rebuild" / layout.directory


def history_file(storage: Path) -> Path:
    """The history store of a project: progress, runs, verdicts."""
    return storage / "history.db"


def latest_generation(layout: QueryLayout) -> int:
    """The newest generation of the query that has a directory, the one that follows on a reset, or 1.

    Raises CheckpointError where the query is registered and its directory is gone.
    """
    numbers, names = generations_and_names(layout.folder)
    if layout.query_id and names is not None and QUERY_FILE not in names:
        raise lost_directory(layout.storage, layout.directory, layout.query)
    following = [number + 1 for number in generations(layout.folder / _RESET)] if _RESET in (names or ()) else []
    return max([*numbers, *following], default=1)


def generations_set_aside(layout: QueryLayout) -> list[int]:
    """The generations of the query that resets have moved out of the way, the oldest first."""
    return sorted(generations(layout.folder / _RESET))


def generations(folder: Path) -> list[int]:
    """The generations that have a directory in `folder`."""
    return generations_and_names(folder)[0]


def generations_and_names(folder: Path) -> tuple[list[int], list[str] | None]:
    """The generations in `folder`, and all names there, by one question; None: this user may not look."""
    try:
        names = names_in(folder)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except PermissionError:  # The writer reports it.
        return [], None
    return [int(name[1:]) for name in names if name[:1] == "g" and name[1:].isdigit()], names


def newest_of(layout: QueryLayout) -> QueryLayout:
    """Where the generation lies that the query runs as, or would begin. Raises CheckpointError."""
    return replace(layout, generation=latest_generation(layout))


def has_run(layout: QueryLayout) -> bool:
    """Whether the query has planned a batch; one that was reset counts too."""
    return Checkpoint(newest_of(layout).checkpoint).last_batch is not None or bool(generations_set_aside(layout))


def layout_named(storage: Path, query: str, former: Sequence[str] = ()) -> QueryLayout:
    """The first generation of the query of this name, or of that which had one of its `former` names until now.

    Raises CheckpointError and PlatformError, as `read_register`.
    """
    return layout_in(storage, read_register(storage), query, former)


def layout_in(storage: Path, register: Register | None, query: str, former: Sequence[str] = ()) -> QueryLayout:
    """Return what `layout_named` does, by a register that was read."""
    entry = None if register is None else find_entry(storage, register, query, former)
    if entry is None and register is not None:
        require_known(storage, register, query)
    return layout_of_entry(storage, query, entry)


def layout_of_entry(storage: Path, query: str, entry: Entry | None) -> QueryLayout:
    """The first generation of a registered query; None: of one whose directory is still to be made."""
    directory, query_id = (query, "") if entry is None else (entry.directory, entry.id)
    return QueryLayout(storage=storage, query=query, directory=directory, query_id=query_id)


def find_entry(storage: Path, register: Register, query: str, former: Sequence[str]) -> Entry | None:
    """What the register knows the query by: its name, or the first of its `former` names that is known.

    What a start by the new name has left that planned no batch gives way to a former name that has run.
    """
    if register.rebuilds:
        return next(iter(register.queries.values()), None)
    own = register.queries.get(query)
    known = [register.queries[name] for name in former if name in register.queries]
    if not known or (own is not None and has_run(layout_of_entry(storage, query, own))):
        return own
    return next((entry for entry in known if has_run(layout_of_entry(storage, query, entry))), own or known[0])


def layout_of(project: Project, query: Query) -> QueryLayout:
    """Where the newest generation of a query lies."""
    return newest_of(layout_named(project.storage, query.name, query.renamed_from))
