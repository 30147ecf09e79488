"""The commands for a query that must not resume over its state: rebuild and reset."""

from __future__ import annotations

from headrace.model import Query


def reset_command(query: Query) -> str:
    """The command that resets `query`, with the choice that its sink has."""
    return f"headrace reset {query.name} --{'drop' if query.sink.reset.droppable else 'keep'}-result"


def anew(query: Query) -> str:
    """What a user may do whose query is to mean something else from its sources' beginning on."""
    reset = f"reset the query, which then reads its sources from the beginning: {reset_command(query)}"
    if query.sink.swap is None:
        return reset
    return f"recompute its result beside the one that is there: headrace rebuild {query.name}; or {reset}"
