"""Whose a connector's fault is: a connector knows neither its name nor where it was declared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import NOWHERE, Finding, HeadraceError, Where
from headrace.model import Query
from headrace.queries.ways_out import reset_command

# How messages name the way out that most of them have; a connector knows no query's name.
_RESET, _REWIND = "headrace reset QUERY", "headrace rewind QUERY"


@contextmanager
def named(whose: str, where: Where) -> Iterator[None]:
    """Say of the faults raised inside that they are `whose`, unless they name a query themselves, and `where`."""
    try:
        yield
    except HeadraceError as error:
        error.findings = tuple(
            each.but(
                what=each.what if "query '" in each.what else f"{whose}: {each.what}",
                where=where if each.where == NOWHERE else each.where,
            )
            for each in error.findings
        )
        raise


def with_command(query: Query, finding: Finding) -> Finding:
    """The finding about `query`, with the command to type in place of its pattern."""
    fix = finding.fix.replace(_RESET, reset_command(query))
    return finding.but(fix=fix.replace(_REWIND, f"headrace rewind {query.name}"))


@contextmanager
def commanded(query: Query) -> Iterator[None]:
    """Let the faults raised inside, which are about `query`, have the command to type."""
    try:
        yield
    except HeadraceError as error:
        error.findings = tuple(with_command(query, each) for each in error.findings)
        raise
