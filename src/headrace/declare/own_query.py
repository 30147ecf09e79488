"""The project around one query that a script or a notebook starts, and its start in the caller's own session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import model
from headrace.declare import declarations
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
from headrace.declare.decorators import parse_trigger
from headrace.declare.variables import Variables
from headrace.errors import ProjectError
from headrace.model import Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def project_of(
    declared: DeclaredQuery[..., Any], *, root: Path | str | None = None, environ: Mapping[str, str] | None = None
) -> model.Project:
    """The small project around one query: what it reads, found by name where its functions were written.

    Raises ProjectError with every fault of the declarations; an input that is not found is left for the structural
    check to report.
    """
    home = Path(root or Path.cwd()).resolve()
    assembly = Assembly(root=home, variables=Variables.of(home, environ))
    found: dict[str, dict[str, Any]] = {"sources": {}, "tables": {}, "views": {}, "counters": {}}
    waiting: list[tuple[str, DeclaredTransform[..., Any]]] = [(name, declared) for name in declared.inputs]
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


def set_starter(start: Callable[..., StreamingQuery]) -> None:
    """Say how to run: `start(project, query, spark, trigger=trigger)`, which only an outer room knows."""

    def start_declared(
        declared: DeclaredQuery[..., Any],
        spark: SparkSession,
        *,
        trigger: Trigger | str | None = None,
        root: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> StreamingQuery:
        project = project_of(declared, root=root, environ=environ)
        wanted = parse_trigger(trigger) if isinstance(trigger, str) else trigger
        return start(project, project.queries[declared.name], spark, trigger=wanted)

    declarations.starters[:] = [start_declared]
