"""How far a change of a query is, by the query's log, and what that keeps from being done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.errors import PlainData
from headrace.generations.log import ChangeName

Choice: TypeAlias = Literal["keep", "drop"]


@dataclass(frozen=True, kw_only=True)
class ChangeStatus(PlainData):
    """How far a change of a query is.

    Attributes:
        change: The command that begins the change.
        phase: The step that is being done, or was done last.
        begun: When the change began, in ISO 8601.
        is_cut_off: Whether the query must not start before the change is ended or taken back.
        sentence: The status, and the next command.
    """

    query: str
    change: ChangeName
    phase: str
    begun: str
    is_cut_off: bool
    sentence: str


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
    def begin(cls, checkpoint: Checkpoint, batch: int | None, sources: Mapping[str, str]) -> AdoptionRecord:
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
