"""What is kept of an adoption beside the checkpoint that it brings: where it came from, and whether all is in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckpointError, Finding, Where
from headrace.model.layout import QueryLayout
from headrace.storage import json_record


@dataclass(frozen=True, kw_only=True)
class AdoptionRecord:
    """checkpoint: the directory that was copied. id: of its query. batch: the last one that the sink has; None: none.

    planned, committed: the newest ones in that directory. sources: by their names, what the former job's checkpoint
    calls them. at: when it was begun.
    """

    checkpoint: str
    id: str
    planned: int | None
    committed: int | None
    batch: int | None
    sources: Mapping[str, str]
    at: str

    @classmethod
    def begun(cls, checkpoint: Checkpoint, batch: int | None, sources: Mapping[str, str]) -> AdoptionRecord:
        """The record of an adoption that begins now."""
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(
            checkpoint=str(checkpoint.root),
            id=checkpoint.id or "",
            planned=checkpoint.last_batch,
            committed=checkpoint.last_committed,
            batch=batch,
            sources=dict(sources),
            at=at,
        )

    @classmethod
    def of(cls, layout: QueryLayout) -> AdoptionRecord | None:
        """The record of a generation, None without one. Raises CheckpointError."""
        damaged = json_record.Damaged(
            file=layout.adoption,
            code="HR598",
            what="the record of an adoption cannot be read",
            fix="restore it from a backup; or remove it, if the query has run since",
        )
        return json_record.read_as(cls, damaged)

    def enter(self, layout: QueryLayout) -> None:
        """Keep the record in the generation's directory. Raises OSError."""
        json_record.write(layout.adoption, self)

    def is_of(self, checkpoint: Checkpoint) -> bool:
        """Whether this is the directory as it was when the adoption was begun."""
        newest = (checkpoint.last_batch, checkpoint.last_committed)
        return (self.id, (self.planned, self.committed)) == (checkpoint.id, newest)

    def is_cut_off(self, layout: QueryLayout) -> bool:
        """Whether the checkpoint, which comes last, is not in its place as a whole.

        In an object store it comes and goes in steps, the staged one to the last.
        """
        return layout.staged.checkpoint.exists() or not layout.checkpoint.exists()


def require_adopted(layout: QueryLayout) -> None:
    """Raise CheckpointError if an adoption of the query was begun and cut off."""
    record = AdoptionRecord.of(layout)
    if record is None or not record.is_cut_off(layout):
        return
    command = f"headrace adopt {layout.query} --checkpoint {record.checkpoint}"
    raise CheckpointError(
        Finding(
            code="HR597",
            where=Where(file=str(layout.adoption)),
            what=f"query '{layout.query}' was being given the checkpoint of another program, and that was cut off",
            fix=f"end it: {command}; or reset the query (headrace reset QUERY)",
        )
    )
