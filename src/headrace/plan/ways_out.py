"""The commands by which a query that must not resume begins anew."""

from __future__ import annotations

from headrace.model import Query


def reset_command(query: Query) -> str:
    """The command that resets `query`, with the choice that its sink has."""
    return f"headrace reset {query.name} --{'drop' if query.sink.droppable else 'keep'}-result"
