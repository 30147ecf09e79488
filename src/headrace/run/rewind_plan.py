"""What a rewind takes back, counted, and what came of it; as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from headrace.checkpoint import Archive, Checkpoint, committed_prefix
from headrace.contract import Held
from headrace.errors import CheckpointError, SourceError
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout
from headrace.run.reset_plan import readers


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
