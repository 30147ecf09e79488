"""Renames that cannot be declared so: the old name is still in use, or two things had it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from headrace.errors import Finding
from headrace.model import Project, Query, Source

# What is kept lies in directories of these names.
_NAME = re.compile(r"[A-Za-z0-9_]+\Z")


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


def _faults(word: str, thing: Query | Source, declared: Mapping[str, Query | Source]) -> Iterator[Finding]:
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
