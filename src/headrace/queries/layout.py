"""Where each thing of a project lies in its storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headrace.model import Project, Query
from headrace.storage.durable import names_in

# Where a reset keeps the generations that it sets aside, in a query's directory.
_RESET = "reset"


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

    @property
    def home(self) -> Path:
        home = self.storage / "queries" / self.query
        return (home / self.below if self.below else home) / f"g{self.generation}{self.ending}"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint directory."""
        return self.home / f"checkpoint{self.checkpoint_ending}"

    @property
    def archive(self) -> Path:
        """Offsets and watermarks of every batch, kept longer than Spark keeps them."""
        return self.home / "archive.jsonl"

    @property
    def manifest(self) -> Path:
        """The forms that the query has had, each with its first batch."""
        return self.home / "manifest.jsonl"

    @property
    def versions(self) -> Path:
        """The versions of the query's code, settings and plan for people to read, each with its first batch."""
        return self.home / "versions.jsonl"

    @property
    def sink(self) -> Path:
        """Where the sink of this checkpoint writes."""
        return self.home / "sink.json"

    @property
    def repartitions(self) -> Path:
        """The changes of the number of state partitions, each with the batch that it took."""
        return self.home / "repartitions.jsonl"

    @property
    def tables(self) -> Path:
        """The versions of the tables that are recomputed while the query runs, one directory for each table."""
        return self.home / "tables"

    @property
    def table_record(self) -> Path:
        """Which versions of its tables the query used, each with its first batch."""
        return self.home / "tables.jsonl"

    @property
    def counters(self) -> Path:
        """What the query's counters have come to with each batch."""
        return self.home / "counters.jsonl"

    @property
    def quarantine(self) -> Path:
        """Rows that were quarantined, one file for each source and batch."""
        return self.home / "quarantine"

    @property
    def late(self) -> Path:
        """Rows that were dropped as late, one file for each batch that dropped any, for the query that takes them."""
        return self.home / "late"

    @property
    def reset(self) -> Path:
        """What is being done, or was done, to begin the next generation in place of this one."""
        return self.home / "reset.json"

    @property
    def adoption(self) -> Path:
        """Which checkpoint of another program this generation continues."""
        return self.home / "adopted.json"

    @property
    def plan(self) -> Path:
        """The plans of the first batch of the newest start, as Spark tells them."""
        return self.home / "plan.txt"

    @property
    def staged(self) -> QueryLayout:
        """The same generation while the copy of an adopted checkpoint is not yet in its place."""
        return replace(self, checkpoint_ending=".adopted")

    @property
    def source_rename(self) -> Path:
        """Which sources are being renamed in the checkpoint; gone once that is done."""
        return self.home / "source_rename.json"

    @property
    def rewound(self) -> Path:
        """The mark of a generation that was rewound: of which rewind it is."""
        return self.home / "rewound.json"

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


def layout_of(project: Project, query: Query) -> QueryLayout:
    """Where the newest generation of a query lies."""
    return QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))
