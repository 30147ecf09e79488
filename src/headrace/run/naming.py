"""Whose a connector's fault is: a connector knows neither its name nor where it was declared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from headrace.errors import NOWHERE, HeadraceError, Where


@contextmanager
def named(whose: str, where: Where) -> Iterator[None]:
    """Say of the faults raised inside that they are `whose`, unless they name a query themselves, and `where`."""
    try:
        yield
    except HeadraceError as error:
        error.findings = tuple(
            replace(
                each,
                what=each.what if "query '" in each.what else f"{whose}: {each.what}",
                where=where if each.where == NOWHERE else each.where,
            )
            for each in error.findings
        )
        raise
