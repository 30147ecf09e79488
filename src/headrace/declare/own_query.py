"""The project around one query that a script or a notebook starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace import model
from headrace.declare.assembly import Assembly, counter, table, transform
from headrace.declare.declarations import (
    DECLARED,
    DeclaredCounter,
    DeclaredQuery,
    DeclaredSource,
    DeclaredTable,
    DeclaredTransform,
    DeclaredView,
)
from headrace.declare.variables import Variables
from headrace.errors import ProjectError


def project_of(
    declared: DeclaredQuery, *, root: Path | str | None = None, environ: Mapping[str, str] | None = None
) -> model.Project:
    """The small project around one query: what it reads, found by name where its functions were written.

    Raises ProjectError with every fault of the declarations; an input that is not found is left for the structural
    check to report.
    """
    home = Path(root or Path.cwd()).resolve()
    assembly = Assembly(root=home, variables=Variables.of(home, environ))
    found: dict[str, dict[str, Any]] = {"sources": {}, "tables": {}, "views": {}, "counters": {}}
    waiting: list[tuple[str, DeclaredTransform]] = [(name, declared) for name in declared.inputs]
    seen: set[str] = set()
    while waiting:
        name, asking = waiting.pop(0)
        thing = asking.in_sight(name)
        if name in seen or not isinstance(thing, DECLARED):
            continue
        seen.add(name)
        if isinstance(thing, DeclaredSource):
            found["sources"][name] = assembly.source(name, thing)
        elif isinstance(thing, DeclaredTable):
            found["tables"][name] = table(name, thing)
        elif isinstance(thing, DeclaredCounter):
            found["counters"][name] = counter(name, thing)
        elif isinstance(thing, DeclaredView):
            found["views"][name] = model.View(name=name, transform=transform(thing), where=thing.where)
        if isinstance(thing, (DeclaredTable, DeclaredView)):
            waiting.extend((wanted, thing) for wanted in thing.inputs)
    query = assembly.query(declared.name, declared)
    if query is None or assembly.findings:
        raise ProjectError.of_all(assembly.findings)
    return model.Project(
        name=declared.name,
        root=home,
        sources=found["sources"],
        tables=found["tables"],
        views=found["views"],
        counters=found["counters"],
        queries={query.name: query},
        secrets=dict(assembly.variables.secrets),
    )
