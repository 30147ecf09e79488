"""The mark that a sink keeps of the newest change of a query, so that a process that wakes late changes nothing."""

from __future__ import annotations

from headrace.contract import Mark, SinkContext
from headrace.errors import CheckpointError, LeaseLost


def is_applied(context: SinkContext, kept: Mark | None) -> bool:
    """Whether the change that `context` is about was made already; `kept`: the sink's mark, read under its lock.

    Raises:
        LeaseLost: Another command has changed the query since.
        CheckpointError: The storage is an older copy than the sink, or another copy has changed it.
    """
    mine = context.mark
    if mine is None or kept is None:
        return False
    if kept.number > mine.number and mine.way != "start":
        fault = (
            f"this process was stopped for longer than its lease lasts, and another command has changed query "
            f"'{context.query}' since: this one writes nothing more"
        )
        raise LeaseLost(code="HR526", what=fault, fix=f"look how it stands: headrace status {context.query}")
    # Two copies of a storage count on alike, each with tokens of its own.
    if kept.number > mine.number or (mine.token_of(kept.number) or kept.token) != kept.token:
        which = "is an older copy" if kept.number > mine.number else "is another copy"
        fault = (
            f"the sink of query '{context.query}' has seen change {kept.number}, and the newest one in this storage "
            f"is {mine.number}: the storage {which}"
        )
        fix = "put the storage back that made that change; or restore the sink too, from a copy of the storage's time"
        if context.find_lost(kept) is not None:
            fix = f"enter that change, whose directory is here: headrace change resume {context.query}; or {fix}"
        raise CheckpointError(code="HR410", what=fault, fix=fix)
    return kept.of == mine.of and kept.way == mine.way
