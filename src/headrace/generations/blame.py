"""Whose a connector's fault is, which it does not know, and the commands that help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import NOWHERE, Finding, HeadraceError
from headrace.model import NamedSource, Query


def reset_command(query: Query) -> str:
    """The command that resets `query`, with the choice that its sink has."""
    return f"headrace reset {query.name} --{'drop' if query.sink.reset.droppable else 'keep'}-result"


def recompute_command(query: Query) -> str:
    """What a user may do whose query is to mean something else from its sources' beginning on."""
    reset = f"reset the query, which then reads its sources from the beginning: {reset_command(query)}"
    if query.sink.swap is None:
        return reset
    return f"recompute its result next to the current one: headrace rebuild {query.name}; or {reset}"


# How messages name the way out that most of them have; a connector knows no query's name.
_RESET, _REWIND = "headrace reset QUERY", "headrace rewind QUERY"


@contextmanager
def attribute_errors(query: Query, source: NamedSource | None = None) -> Iterator[None]:
    """Say of the faults raised inside whose they are, a source's of `query` or its sink's, and name the command.

    A fault that names a query itself keeps its text.
    """
    whose = f"the sink of query '{query.name}'" if source is None else f"query '{query.name}', source '{source.name}'"
    where = query.where if source is None else source.where
    try:
        yield
    except HeadraceError as error:
        reworded = (
            finding.reword(
                what=finding.what if "query '" in finding.what else f"{whose}: {finding.what}",
                where=where if finding.where == NOWHERE else finding.where,
            )
            for finding in error.findings
        )
        error.findings = tuple(with_command(query, finding) for finding in reworded)
        raise


def with_command(query: Query, finding: Finding) -> Finding:
    """The finding about `query`, with the command to type in place of its pattern."""
    fix = finding.fix.replace(_RESET, reset_command(query))
    return finding.reword(fix=fix.replace(_REWIND, f"headrace rewind {query.name}"))


@contextmanager
def name_command(query: Query) -> Iterator[None]:
    """Let the faults raised inside, which are about `query`, have the command to type."""
    try:
        yield
    except HeadraceError as error:
        error.findings = tuple(with_command(query, finding) for finding in error.findings)
        raise
