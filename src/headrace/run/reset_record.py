"""What is kept of a reset in the generation that it ends: what was chosen, and which of its steps is under way.

In the query's own place the record says that a reset was begun; in the place of what was set aside, that it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Literal, TypeAlias

from headrace.errors import CheckpointError, Finding, Where
from headrace.model.layout import QueryLayout, generations_set_aside, latest_generation
from headrace.storage import json_record

Choice: TypeAlias = Literal["keep", "drop"]
Way: TypeAlias = Literal["reset", "undo", "discard"]


@dataclass(frozen=True, kw_only=True)
class ResetRecord:
    """result: whether the sink's rows stay. way: what is being done, or was done last. at: when it was begun."""

    result: Choice
    way: Way
    at: str

    @classmethod
    def begun(cls, result: Choice) -> ResetRecord:
        """The record of a reset that begins now."""
        return cls(result=result, way="reset", at=datetime.now(timezone.utc).isoformat(timespec="seconds"))

    @classmethod
    def of(cls, layout: QueryLayout) -> ResetRecord | None:
        """The record in a generation's directory, None without one. Raises CheckpointError."""
        damaged = json_record.Damaged(
            file=layout.reset,
            code="HR584",
            what="the record of a reset cannot be read",
            fix="restore it from a backup; or write it again: "
            '{"result": "drop", "way": "reset", "at": ""}, with keep for drop where the result was kept',
        )
        return json_record.read_as(cls, damaged)

    def enter(self, layout: QueryLayout) -> None:
        """Keep the record in the generation's directory. Raises OSError."""
        json_record.write(layout.reset, self)

    def on(self, way: Way) -> ResetRecord:
        """The same record once another way is taken."""
        return replace(self, way=way)


def newest_set_aside(layout: QueryLayout) -> QueryLayout | None:
    """The newest generation of the query that a reset has moved out of the way."""
    found = generations_set_aside(layout.storage, layout.query)
    return QueryLayout(layout.storage, layout.query, found[-1]).set_aside if found else None


def current(layout: QueryLayout) -> QueryLayout:
    """The generation that the query runs as, or would begin."""
    return QueryLayout(layout.storage, layout.query, latest_generation(layout.storage, layout.query))


def cut_off(layout: QueryLayout) -> tuple[QueryLayout, ResetRecord] | None:
    """What a crash has cut off: the generation that it is about, and its record; None: nothing."""
    record = ResetRecord.of(layout)
    if record is not None:
        return layout, record
    aside = newest_set_aside(layout)
    record = None if aside is None else ResetRecord.of(aside)
    return (aside, record) if aside is not None and record is not None and record.way != "reset" else None


def require_whole(layout: QueryLayout) -> None:
    """Raise CheckpointError if a reset of the query, or its undoing, was cut off."""
    found = cut_off(layout)
    if found is None or found[1].way == "discard":
        return
    record = found[1]
    command = f"headrace reset {layout.query} --{record.result}-result" if record.way == "reset" else _undo(layout)
    other = f"; or take it back: {_undo(layout)}" if record.way == "reset" else ""
    done = "a reset" if record.way == "reset" else "the undoing of a reset"
    raise CheckpointError(
        Finding(
            code="HR581",
            where=Where(file=str(found[0].reset)),
            what=f"{done} of query '{layout.query}' was cut off, so that its checkpoint and its result may not fit",
            fix=f"end it: {command}{other}",
        )
    )


def _undo(layout: QueryLayout) -> str:
    return f"headrace reset {layout.query} --undo"
