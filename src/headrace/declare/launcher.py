"""Start a declared query in the caller's own session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.declare import declarations as things
from headrace.declare.declarations import DeclaredQuery
from headrace.declare.own_query import project_of
from headrace.declare.triggers import parse_trigger
from headrace.model import Trigger


def set_starter(start: Callable[..., Any]) -> None:
    """Say how to run: `start(project, query, spark, trigger=trigger)`, which only an outer room knows."""

    def start_declared(
        declared: DeclaredQuery,
        spark: Any,
        *,
        trigger: Trigger | str | None = None,
        root: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Any:
        project = project_of(declared, root=root, environ=environ)
        wanted = parse_trigger(trigger) if isinstance(trigger, str) else trigger
        return start(project, project.queries[declared.name], spark, trigger=wanted)

    things.starters[:] = [start_declared]
