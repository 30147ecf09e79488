"""Names and places that two things claim: sinks that write to one place, and renames to names in use."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.contract import Connector, Identity, same_place
from headrace.contract.identity import canonical_path, shown
from headrace.errors import Finding
from headrace.model import NamedSource, Project, Query

# What is kept lies in directories of these names.
_NAME = re.compile(r"[A-Za-z0-9_]+\Z")


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


def renames(project: Project) -> Iterator[tuple[frozenset[str], Finding]]:
    """The faults of `renamed_from`, each with the queries that it keeps from running."""
    for query in project.queries.values():
        for finding in _faults("query", query, project.queries):
            yield frozenset({query.name}), finding
    readers = defaultdict(set)
    for query in project.queries.values():
        for source in project.sources_of(query):
            readers[source.name].add(query.name)
    for source in project.sources.values():
        for finding in _faults("source", source, project.sources):
            yield frozenset(readers[source.name]), finding


def _faults(word: str, thing: Query | NamedSource, declared: Mapping[str, Query | NamedSource]) -> Iterator[Finding]:
    whose = f"{word} '{thing.name}'"
    for former in dict.fromkeys(thing.renamed_from):
        twin = next((each for each in declared.values() if each is not thing and former in each.renamed_from), None)
        if _NAME.match(former) is None:
            what, fix = f"{whose} is renamed from '{former}', which is no name", "write the name that it had before"
        elif former == thing.name:
            what, fix = f"{whose} is renamed from itself", "write the name that it had before, or leave the key out"
        elif former in declared and thing.name in declared[former].renamed_from:
            what = f"{whose} and {word} '{former}' are renamed into each other, and neither name is free for the other"
            fix = "give one of them a third name first, run both, and then the name that is free"
        elif former in declared:
            what = f"{whose} is renamed from '{former}', which is declared as well: one checkpoint has one {word}"
            fix = f"remove '{former}'; or remove renamed_from, if '{thing.name}' is another one or was renamed already"
        elif twin is not None:
            what = f"{whose} and {word} '{twin.name}' are both renamed from '{former}': one checkpoint has one {word}"
            fix = "remove renamed_from at one of the two, which then starts from scratch"
        else:
            continue
        yield Finding(code="HR548", what=what, fix=fix, where=thing.where)
