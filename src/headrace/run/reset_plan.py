"""What a reset moves out of the way, counted, and what came of it; as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.checkpoint import Archive
from headrace.checkpoint.logs import numbered
from headrace.contract import Held, same_place
from headrace.errors import CheckpointError
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.run.checkpoint_facts import size_of
from headrace.run.reset_record import Choice

_FOLDERS = {"offsets": "planned batches", "commits": "committed batches"}


@dataclass(frozen=True, kw_only=True)
class ResetPlan:
    """What a reset does: what it moves out of the way, in the storage and in the sink, and what is to be known of it.

    result: whether the sink's rows stay. continues: it ends a reset that was cut off.
    """

    query: str
    generation: int
    result: Choice
    stored: tuple[Held, ...]
    held: tuple[Held, ...]
    notes: tuple[str, ...]
    continues: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data, for `--json`."""
        return {
            **asdict(self),
            "stored": [asdict(each) for each in self.stored],
            "held": [asdict(each) for each in self.held],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class ResetResult:
    """What was done: the generation that the query now runs as, and those that are kept for --undo."""

    query: str
    done: str
    generation: int
    set_aside: tuple[int, ...] = ()
    plan: ResetPlan | None = None

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        plan = {} if self.plan is None else {"plan": self.plan.as_dict()}
        facts = {"query": self.query, "done": self.done, "generation": self.generation}
        return {**facts, "set_aside": list(self.set_aside), **plan}


def stored(layout: QueryLayout) -> Iterator[Held]:
    """What the storage keeps of a generation, counted."""
    checkpoint = layout.checkpoint
    try:
        batches: Mapping[str, int] = {name: len(numbered(checkpoint / name)) for name in _FOLDERS}
    except CheckpointError:
        # Of a directory that cannot be read nothing is told but that it is there.
        batches = {}
    counts = (
        *((batches.get(name, 0), f"{called} in the checkpoint") for name, called in _FOLDERS.items()),
        (size_of(checkpoint) - size_of(checkpoint / "state"), "bytes of the checkpoint"),
        (size_of(checkpoint / "state"), "bytes of state"),
        (_archived(layout), "batches in the archive"),
        (sum(map(_lines, layout.quarantine.rglob("*.jsonl"))), "rows in the quarantine of its sources"),
        (sum(1 for _ in layout.tables.glob("*/*")), "versions of its tables"),
        (size_of(layout.staged.checkpoint), "bytes of a checkpoint whose adoption was cut off"),
        (int(layout.adoption.exists()), "record of an adoption"),
    )
    yield from (Held(count=count, what=what) for count, what in counts if count)


def _archived(layout: QueryLayout) -> int:
    try:
        return Archive(layout.archive).size()
    except OSError:
        return 0


def _lines(file: Path) -> int:
    try:
        with file.open("rb") as opened:
            return sum(1 for _ in opened)
    except OSError:
        return 0


def readers(project: Project, query: Query) -> Iterator[str]:
    """The other queries that read what the sink of `query` writes."""
    place = query.sink.identity()
    for other in project.queries.values():
        read = (source.connector.identity() for source in project.sources_of(other) if other.name != query.name)
        if place is not None and any(each is not None and same_place(place, each) for each in read):
            yield other.name
