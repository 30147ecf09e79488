"""What the project is: a graph of its parts, and the definition of a query, in each version that ran."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from headrace.checks.result import compute_guarantee
from headrace.generations.log import QueryLayout
from headrace.model import NamedSource, Project, Query, Table, View
from headrace.model.project import SqlTransform, Transform, code_of
from headrace.storage import json_lines


def graph(project: Project) -> dict[str, list[dict[str, Any]]]:
    """Nodes and edges as plain data; the id of a node is its kind and name."""
    nodes, edges = [], []
    for source in project.sources.values():
        mark = source.watermark
        about = f"watermark {mark.column}, {mark.delay}" if mark else ""
        nodes.append(_node("source", source.name, source.kind, about))
    for table in project.tables.values():
        nodes.append(_node("table", table.name, "table", f"refreshed every {table.refresh}" if table.refresh else ""))
        edges += _inputs(project, table.transform, f"table:{table.name}")
    for view in project.views.values():
        nodes.append(_node("view", view.name, "view", ""))
        edges += _inputs(project, view.transform, f"view:{view.name}")
    for query in project.queries.values():
        nodes.append(_node("query", query.name, f"{query.mode} mode", str(query.trigger)))
        nodes.append(_node("sink", query.name, query.sink_kind, _place(project, query)))
        edges += _inputs(project, query.transform, f"query:{query.name}")
        edges.append({"from": f"query:{query.name}", "to": f"sink:{query.name}"})
        # What another query writes, or drops as late, and this one reads as a stream.
        for writer in project.writers_for(query):
            begins = f"query:{writer.name}" if writer.late == query.name else f"sink:{writer.name}"
            for source in project.sources_of(query):
                if source.connector.catalog_table == writer.sink.catalog_table or writer.late == query.name:
                    edges.append({"from": begins, "to": f"source:{source.name}"})
    return {"nodes": nodes, "edges": edges}


def definition(project: Project, query: Query) -> dict[str, Any]:
    """Return what is declared of a query: its text, what it reads and writes, and what it guarantees."""
    promise = compute_guarantee(project, query)
    return {
        "name": query.name,
        "description": query.description,
        "mode": query.mode,
        "trigger": str(query.trigger),
        "sink": {"kind": query.sink_kind, "place": _place(project, query)},
        "inputs": [{"name": thing.name, "kind": _kind(thing)} for thing in project.upstream(query.transform)],
        "where": str(query.where),
        "guarantee": promise.as_dict(),
        "code": code(query.transform),
        "views": [
            {"name": thing.name, "code": code(thing.transform)}
            for thing in project.upstream(query.transform)
            if isinstance(thing, View)
        ],
    }


def code(transform: Transform) -> dict[str, str]:
    """Return the SQL or Python of a transformation."""
    return {"language": "sql" if isinstance(transform, SqlTransform) else "python", "text": code_of(transform)}


def _node(kind: str, name: str, about: str, more: str) -> dict[str, Any]:
    return {"id": f"{kind}:{name}", "kind": kind, "name": name, "about": about, "more": more}


def _kind(thing: NamedSource | Table | View) -> str:
    return "source" if isinstance(thing, NamedSource) else "table" if isinstance(thing, Table) else "view"


def _inputs(project: Project, transform: Transform, to: str) -> list[dict[str, str]]:
    kinds = {name: _kind(thing) for name, thing in project.inputs().items()}
    return [{"from": f"{kinds[name]}:{name}", "to": to} for name in transform.inputs if name in kinds]


def _place(project: Project, query: Query) -> str:
    """Return the directory, table or topic that the sink writes, as seen from the project."""
    places = [getattr(query.sink, option, None) for option in query.sink.place_options]
    return ", ".join(str(place).removeprefix(f"{project.root}/") for place in places if place)


VERSIONS_MOST = 50
LINES_MOST = 400


def versions(layout: QueryLayout, newest: int) -> list[dict[str, Any]]:
    """Return the versions of all generations up to the `newest`, the newest first."""
    noted = list(
        chain.from_iterable(_read_versions(replace(layout, generation=number + 1)) for number in range(newest))
    )
    shown = []
    for at, version in enumerate(noted):
        until = noted[at + 1]["at"] if at + 1 < len(noted) else None
        changes = dict(_changes(noted[at - 1], version)) if at else {}
        shown.append({**version, "until": until, "changes": changes})
    return shown[: -VERSIONS_MOST - 1 : -1]


def _read_versions(layout: QueryLayout) -> Iterator[dict[str, Any]]:
    try:
        lines = json_lines.read(layout.versions, skip="any")
    except (OSError, json_lines.DamagedLine):
        return
    for line in lines:
        if isinstance(line, dict) and {"at", "from_batch", "code", "settings", "plan"} <= line.keys():
            yield {**line, "generation": layout.generation}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what differs, by the name of the part, as lines that begin with `-`, `+` or a space."""
    for name in dict.fromkeys((*before["code"], *now["code"])):
        yield from _difference(f"code of {name}", before["code"].get(name, ""), now["code"].get(name, ""))
    old, new = ("\n".join(f"{k}: {v}" for k, v in sorted(version["settings"].items())) for version in (before, now))
    yield from _difference("settings", old, new)
    yield from _difference("plan", before["plan"], now["plan"])


def _difference(part: str, before: str, now: str) -> Iterator[tuple[str, str]]:
    lines = list(difflib.unified_diff(before.splitlines(), now.splitlines(), n=2, lineterm=""))[2:]
    if lines:
        yield part, "\n".join(line for line in lines[:LINES_MOST] if not line.startswith("@@"))
