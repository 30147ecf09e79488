"""What is kept of a rewind beside the query's generations: to which batch, and which of its steps is under way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Literal, TypeAlias

from headrace.errors import CheckpointError, Finding, Where
from headrace.model.layout import QueryLayout, rewind_record
from headrace.storage import json_record
from headrace.storage.durable import sync_directory

# done: it can be taken back. discard: what that needs is being deleted.
Way: TypeAlias = Literal["rewind", "undo", "done", "discard"]


@dataclass(frozen=True, kw_only=True)
class RewindRecord:
    """generation: which one. batch: the one that is gone back to. newest: the one before. at: when it was begun."""

    generation: int
    batch: int
    newest: int
    way: Way
    at: str

    @classmethod
    def begun(cls, layout: QueryLayout, batch: int, newest: int) -> RewindRecord:
        """The record of a rewind that begins now."""
        at = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        return cls(generation=layout.generation, batch=batch, newest=newest, way="rewind", at=at)

    @classmethod
    def of(cls, layout: QueryLayout) -> RewindRecord | None:
        """The record of a query, None without one. Raises CheckpointError."""
        damaged = json_record.Damaged(
            file=rewind_record(layout.storage, layout.query),
            code="HR653",
            what="the record of a rewind cannot be read",
            fix="restore it from a backup; or remove it, if the last rewind of the query has ended",
        )
        return json_record.read_as(cls, damaged)

    def enter(self, layout: QueryLayout) -> None:
        """Keep the record. Raises OSError."""
        json_record.write(rewind_record(layout.storage, layout.query), self)

    @staticmethod
    def remove(layout: QueryLayout) -> None:
        """Let nothing be known of a rewind. Raises OSError."""
        file = rewind_record(layout.storage, layout.query)
        file.unlink(missing_ok=True)
        sync_directory(file.parent)

    def on(self, way: Way) -> RewindRecord:
        """The same record once another way is taken."""
        return replace(self, way=way)

    @property
    def is_cut_off(self) -> bool:
        """Whether checkpoint and result may not fit."""
        return self.way in ("rewind", "undo")

    def layout(self, layout: QueryLayout) -> QueryLayout:
        """The places of its generation, whose directory a crash may have left between two names."""
        return QueryLayout(layout.storage, layout.query, self.generation)


def require_rewound(layout: QueryLayout) -> None:
    """Raise CheckpointError if a rewind of the query, or its undoing, was cut off."""
    record = RewindRecord.of(layout)
    if record is None or not record.is_cut_off:
        return
    undo = f"headrace rewind {layout.query} --undo"
    command = f"headrace rewind {layout.query} --to-batch {record.batch}" if record.way == "rewind" else undo
    other = f"; or take it back: {undo}" if record.way == "rewind" else ""
    done = "a rewind" if record.way == "rewind" else "the undoing of a rewind"
    raise CheckpointError(
        Finding(
            code="HR649",
            where=Where(file=str(rewind_record(layout.storage, layout.query))),
            what=f"{done} of query '{layout.query}' was cut off, so that its checkpoint and its result may not fit",
            fix=f"end it: {command}{other}",
        )
    )
