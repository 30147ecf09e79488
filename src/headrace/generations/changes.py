"""How far a change of a query is, by the query's log, and what that keeps from being done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckpointError, Fenced, Finding, PlainData, PlatformError, Where
from headrace.generations.layout import QueryLayout, log_of
from headrace.generations.log import FOLDER, ChangeName
from headrace.storage.numbered import file_of

Choice: TypeAlias = Literal["keep", "drop"]


@dataclass(frozen=True, kw_only=True)
class ChangeStatus(PlainData):
    """How far a change of a query is.

    change: the command that begins it. phase: what is being done, or was done last. begun: when, in ISO 8601.
    is_cut_off: the query must not start before it is ended or taken back. sentence: how it stands, and the next
    command.
    """

    query: str
    change: ChangeName
    phase: str
    begun: str
    is_cut_off: bool
    sentence: str


def cut_offs(layout: QueryLayout) -> Iterator[Finding]:
    """Yield that a change was cut off, so that the query must not start. Raises CheckpointError."""
    record, query = log_of(layout), layout.query
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
    """Raise CheckpointError if a change was cut off."""
    if findings := tuple(cut_offs(layout)):
        raise CheckpointError(findings)


def rebuilding(layout: QueryLayout) -> Iterator[Finding]:
    """Yield why nothing but its rebuild may change the query."""
    record = log_of(layout)
    if record is not None and record.building is not None and not record.is_between:
        yield Finding(
            code="HR571",
            where=Where(file=str(file_of(layout.folder / FOLDER, record.number))),
            what=f"a rebuild of query '{layout.query}' was begun at {record.begun}, which makes its generation "
            f"{record.building.generation}",
            fix=f"end it: headrace change resume {layout.query}; or give it up: headrace change discard {layout.query}",
        )


@dataclass(frozen=True, kw_only=True)
class AdoptionRecord:
    """The checkpoint of another program that a generation continues.

    checkpoint: the directory that was copied. id: of its query. batch: the last one that the sink has; None: none.
    planned, committed: the newest ones in that directory. sources: by their names, what the former job's checkpoint
    calls them.
    """

    checkpoint: str
    id: str
    planned: int | None
    committed: int | None
    batch: int | None
    sources: Mapping[str, str]

    @classmethod
    def begun(cls, checkpoint: Checkpoint, batch: int | None, sources: Mapping[str, str]) -> AdoptionRecord:
        """The record of an adoption that begins now."""
        return cls(
            checkpoint=str(checkpoint.root),
            id=checkpoint.id or "",
            planned=checkpoint.last_batch,
            committed=checkpoint.last_committed,
            batch=batch,
            sources=dict(sources),
        )

    def is_of(self, checkpoint: Checkpoint) -> bool:
        """Whether this is the directory as it was when the adoption was begun."""
        newest = (checkpoint.last_batch, checkpoint.last_committed)
        return (self.id, (self.planned, self.committed)) == (checkpoint.id, newest)
