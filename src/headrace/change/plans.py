"""What a reset, a rewind or an adoption would do, and what it has done, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeAlias

from headrace.checkpoint import Archive, Checkpoint, StateOperator, committed_prefix
from headrace.checkpoint.logs import numbered
from headrace.contract import Held, same_place
from headrace.errors import CheckpointError, Finding, SourceError
from headrace.model import Project, Query
from headrace.queries.changes import Choice
from headrace.queries.inspect_checkpoint import size_of
from headrace.queries.layout import QueryLayout

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


@dataclass(frozen=True, kw_only=True)
class RewindPlan:
    """What a rewind does: the batches after `batch`, up to `newest`, are taken back.

    planned_at, newest_at: when the two were planned; None: not known. held: what changes in the sink. lost: what does
    not come again. notes: what is to be known besides. continues: it ends a rewind that was cut off.
    """

    query: str
    generation: int
    batch: int
    newest: int
    planned_at: str | None
    newest_at: str | None
    held: tuple[Held, ...]
    lost: tuple[str, ...]
    notes: tuple[str, ...]
    continues: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data, for `--json`."""
        plain = {"held": [asdict(each) for each in self.held], "lost": list(self.lost), "notes": list(self.notes)}
        return {**asdict(self), **plain}


@dataclass(frozen=True, kw_only=True)
class RewindResult:
    """What was done, and the batch that the next start continues after."""

    query: str
    done: str
    generation: int
    batch: int | None
    plan: RewindPlan | None = None

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        plan = {} if self.plan is None else {"plan": self.plan.as_dict()}
        facts = {"query": self.query, "done": self.done, "generation": self.generation, "batch": self.batch}
        return {**facts, **plan}


def utc_text(time_ms: int | None) -> str | None:
    """A time as ISO 8601 in UTC."""
    if time_ms is None:
        return None
    moment = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lost(project: Project, query: Query, layout: QueryLayout, batch: int, newest: int) -> Iterator[str]:
    """What the sources will not give again of the batches after `batch`, as far as that is seen without a JVM."""
    checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
    for source in project.sources_of(query):
        facts = source.connector.facts
        if facts.ephemeral or not facts.replayable:
            yield f"source '{source.name}' does not keep what it has given: its rows of these batches do not come again"
            continue
        try:
            prefix = committed_prefix(checkpoint, archive, [source.name], newest, since=batch + 1)
            source.connector.ensure_available(prefix[source.name])
        except SourceError as error:
            yield f"source '{source.name}': {error.findings[0].what}"
        except CheckpointError:
            continue  # The archive lacks a batch: what it took is not known.


def notes(project: Project, query: Query, batch: int) -> Sequence[str]:
    """What is to be known of a rewind."""
    found = [
        f"query '{name}' reads the result, and has read rows that are taken back; rewind or reset it as well"
        for name in readers(project, query)
    ]
    return [*found, f"what its sources gave after batch {batch} is read again by the next start"]


# What the user says of a batch that is planned and not committed: whether the result has its rows.
PlannedIs: TypeAlias = Literal["written", "not-written"]


@dataclass(frozen=True, kw_only=True)
class AdoptedSource:
    """A source: its name, its kind, what the former job's checkpoint calls it, and how far it was read.

    waits: what no batch has taken yet, which the first start gives; empty where that is not known without Spark.
    """

    name: str
    kind: str
    position: str
    reached: str
    waits: str = ""


@dataclass(frozen=True, kw_only=True)
class AdoptionPlan:
    """What an adoption does.

    checkpoint: the former job's directory; id: of its query. first, committed, planned: its batches; planned is None
    where the newest is committed. batch: the last one that the result has; None: none. provider: of the state.
    result: what the sink holds. notes: what is to be known, continues: it ends an adoption that was cut off.
    """

    query: str
    checkpoint: str
    id: str
    generation: int
    first: int
    committed: int | None
    planned: int | None
    batch: int | None
    sources: tuple[AdoptedSource, ...]
    operators: tuple[StateOperator, ...]
    provider: str | None
    settings: Mapping[str, str]
    size_bytes: int
    result: tuple[Held, ...]
    notes: tuple[Finding, ...] = ()
    continues: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data, for `--json`."""
        plain = asdict(self)
        plain["operators"] = [{**asdict(each), "stores": list(each.stores)} for each in self.operators]
        plain["sources"] = [asdict(each) for each in self.sources]
        plain["result"] = [asdict(each) for each in self.result]
        plain["notes"] = [each.as_dict() for each in self.notes]
        return plain


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """What was done, and the first batch that Headrace makes."""

    query: str
    next_batch: int
    plan: AdoptionPlan

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return {"query": self.query, "next_batch": self.next_batch, "plan": self.plan.as_dict()}
