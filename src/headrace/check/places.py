"""Queries that write where another query writes, or where they read themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from headrace.contract import Connector, Identity, same_place
from headrace.contract.identity import canonical_path, shown
from headrace.errors import Finding
from headrace.model import Project, Query


def places(project: Project) -> Iterator[tuple[frozenset[str], Finding]]:
    """The faults of queries beside others, each with the queries that it keeps from running."""
    yield from _written_twice(project)
    yield from _fed_back(project)


def _written_twice(project: Project) -> Iterator[tuple[frozenset[str], Finding]]:
    """Queries whose sinks write to one place, in whatever spelling; a console, say, is taken by many."""
    near: dict[str, list[tuple[Query, Identity | None]]] = defaultdict(list)
    for query in project.queries.values():
        if not query.sink.facts.durable:
            continue
        identity = query.sink.identity()
        beside = near[_bucket(query, identity)]
        for other, of_other in beside:
            same = query.sink == other.sink
            shared = all(each.sink.facts.shares_appends and each.mode == "append" for each in (query, other))
            if (not same and not _same_place(identity, of_other)) or shared:
                continue
            facts = query.sink.facts
            finding = Finding(
                code="HR259",
                what=f"queries '{other.name}' and '{query.name}' write to the same place"
                + ("" if same or identity is None else f", {shown(identity)}"),
                fix="give each a place of its own, or union their inputs in one query",
                where=query.where,
                # Messages of a topic are only added, and whoever reads it may tell them apart.
                severity="error" if same or facts.transactional or facts.idempotent else "warning",
            )
            yield frozenset({query.name, other.name}), finding
            break
        beside.append((query, identity))


def _bucket(query: Query, identity: Identity | None) -> str:
    """What sinks of one place have in common, so that not every pair of a project's queries is compared."""
    if identity is None:
        return query.sink_kind
    return str(identity["path"] if "path" in identity else identity["system"])


def _same_place(one: Identity | None, other: Identity | None) -> bool:
    return one is not None and other is not None and same_place(one, other)


def _fed_back(project: Project) -> Iterator[tuple[frozenset[str], Finding]]:
    """Queries that read, through tables of the catalog, what they write themselves."""
    for name, query in project.queries.items():
        written = _directory(query.sink)
        for source in project.sources_of(query):
            read = _directory(source.connector)
            if written is not None and read is not None and (written == read or read in written.parents):
                finding = Finding(
                    code="HR267",
                    what=f"query '{name}' writes to {query.sink.project_path}, which its source '{source.name}' reads",
                    fix="let it write to a directory beside the source's",
                    where=query.where,
                )
                yield frozenset({name}), finding
        above: dict[str, Query] = {}
        queue = [query]
        while queue:
            for writer in project.writers_for(queue.pop()):
                if writer.name not in above:
                    above[writer.name] = writer
                    queue.append(writer)
        if name in above:
            ways = [other for other in above if other != name]
            finding = Finding(
                code="HR267",
                what=f"query '{name}' reads what it writes" + (f", by way of {', '.join(ways)}" if ways else ""),
                fix="read from another table than the queries below it write",
                where=query.where,
            )
            yield frozenset({name}), finding


def _directory(connector: Connector) -> Path | None:
    """The path that a connector reads or writes, in one spelling, if it has one that is no pattern."""
    path = connector.project_path
    if not path or any(sign in path for sign in "*?[{"):
        return None
    return Path(canonical_path(path))
