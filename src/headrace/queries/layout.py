"""Where each thing of a project lies in its storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headrace.model import Project, Query
from headrace.storage.durable import names_in

# Where a reset keeps the generations that it sets aside, in a query's directory.
_RESET = "reset"


class _InHome:
    """A file or a directory of a generation, by its name in the generation's own directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, layout: QueryLayout, owner: type[QueryLayout]) -> Path:
        return layout.home / self._name


@dataclass(frozen=True)
class QueryLayout:
    """The places of one generation of one query below the storage directory."""

    storage: Path
    query: str
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
    # Which sources are being renamed in the checkpoint; gone once that is done.
    source_rename = _InHome("source_rename.json")
    rewound = _InHome("rewound.json")  # The mark of a generation that was rewound: of which rewind it is.

    @property
    def home(self) -> Path:
        home = self.storage / "queries" / self.query
        return (home / self.below if self.below else home) / f"g{self.generation}{self.ending}"

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


def rebuild_storage(storage: Path, query: str) -> Path:
    """The storage directory of the rebuild of a query, as that of a project with this query alone."""
    return storage / "rebuild" / query


def rebuild_record(storage: Path, query: str) -> Path:
    """How far the rebuild of a query is."""
    return storage / "queries" / query / "rebuild.json"


def rewind_record(storage: Path, query: str) -> Path:
    """Which earlier batch a query is being brought back to, or was, and how far that is."""
    return storage / "queries" / query / "rewind.json"


def history_file(storage: Path) -> Path:
    """The history store of a project: progress, runs, verdicts."""
    return storage / "history.db"


def latest_generation(storage: Path, query: str) -> int:
    """The newest generation of `query` that has a directory, the one that follows on a reset, or 1."""
    numbers, names = generations_and_names(home := storage / "queries" / query)
    following = [number + 1 for number in generations(home / _RESET)] if _RESET in names else []
    return max([*numbers, *following], default=1)


def generations_set_aside(storage: Path, query: str) -> list[int]:
    """The generations of `query` that resets have moved out of the way, the oldest first."""
    return sorted(generations(storage / "queries" / query / _RESET))


def generations(home: Path) -> list[int]:
    """The generations that have a directory in `home`."""
    return generations_and_names(home)[0]


def generations_and_names(home: Path) -> tuple[list[int], list[str]]:
    """The generations in `home`, and the names of all that is there, by one question."""
    try:
        names = names_in(home)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # Whoever writes there says so.
        return [], []
    return [int(name[1:]) for name in names if name[:1] == "g" and name[1:].isdigit()], names


def newest_layout(storage: Path, query: str) -> QueryLayout:
    """Where the generation lies that the query of this name runs as, or would begin."""
    return QueryLayout(storage, query, latest_generation(storage, query))


def layout_of(project: Project, query: Query) -> QueryLayout:
    """Where the newest generation of a query lies."""
    return newest_layout(project.storage, query.name)
