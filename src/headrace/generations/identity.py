"""A query entered into the register at its first start, and under another name at the start that declares it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.contract import SinkContext
from headrace.errors import CheckpointError, Finding, Where
from headrace.generations.layout import QueryLayout, find_entry, has_run, layout_of_entry
from headrace.generations.register import (
    QUERIES,
    QUERY_FILE,
    Entry,
    Register,
    append,
    lost_directory,
    read_register,
    with_new_query,
)
from headrace.model import Project, Query


def register_project(project: Project) -> Register:
    """The project's register, begun when there is none, with where the project lies now. Raises as `register_query`."""
    while True:
        register, stands = _due_register(project)
        if stands or append(project.storage, register):
            return register if stands else replace(register, number=register.number + 1)


def _due_register(project: Project) -> tuple[Register, bool]:
    """The register with where the project lies now, and whether its newest record says so already."""
    stored, here = read_register(project.storage), _roots(project)
    register = stored or Register(application=str(uuid.uuid4()), project=project.name, roots=())
    if stored is not None and register.roots[-len(here) :] == here:
        return register, True
    former = tuple(root for root in register.roots if root not in here)
    return replace(register, project=project.name, roots=(*former, *here)), False


def register_query(project: Project, query: Query) -> Entry:
    """What the query is known by; one that nothing is known of gets its id and its directory.

    Raises CheckpointError where a start would take it for another one, and PlatformError.
    """
    for other in project.queries.values():
        if other.late == query.name:  # Its source lies in the directory of that one.
            register_query(project, other)
    while True:
        register, stands = _due_register(project)
        entry = find_entry(project.storage, register, query.name, query.renamed_from)
        if entry is None:
            drawn, stands = with_new_query(project.storage, register, query.name, query.renamed_from), False
            if drawn is None:
                continue
            register, entry = drawn, drawn.queries[query.name]
        if not (project.storage / QUERIES / entry.directory / QUERY_FILE).exists():
            raise lost_directory(project.storage, entry.directory, query.name)
        if stands or append(project.storage, register):
            return entry


def enter_name(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """Enter the name of a query that is about to start, all of which was looked at, as that of its layout's id.

    A start by this name that planned no batch keeps its directory by the former name. Raises CheckpointError if
    another process has given the name, or the id, away.
    """
    while True:
        register = register_project(project)
        own, former = register.queries.get(query.name), register.find(layout.query_id)
        if project.is_rebuild or (own is not None and own.id == layout.query_id):
            return
        if former is None or former not in query.renamed_from:
            fault = f"query '{query.name}' was renamed by another process, to '{former}'"
            fix = "look which name is declared now; then start it by that"
            raise CheckpointError(code="HR549", what=fault, fix=fix, where=query.where)
        entry = register.queries[former]
        others = {name: other for name, other in register.queries.items() if name not in (former, query.name)}
        named = {query.name: replace(entry, former=(*entry.former, former)), **({} if own is None else {former: own})}
        if append(project.storage, replace(register, queries={**others, **named})):
            fault = (
                f"query '{query.name}' continues what ran as '{former}': its checkpoint, archive, history and ledger"
            )
            yield renaming(fault, query.where)
            return


def former_names(project: Project, query: Query, register: Register | None) -> tuple[str, ...]:
    """The names that the query had before, and that no other query has used since."""
    entry = None if register is None else register.queries.get(query.name)
    if register is None or entry is None:
        return ()
    others = ((name, register.queries.get(name)) for name in dict.fromkeys(entry.former))
    return tuple(
        name for name, other in others if other is None or not has_run(layout_of_entry(project.storage, name, other))
    )


def waiting_rename(project: Project, query: Query) -> Iterator[Finding]:
    """That the next start of the query renames it. Raises CheckpointError where more than one is meant."""
    if not query.sink.facts.durable or not query.renamed_from or project.is_rebuild:
        return
    register = read_register(project.storage)
    require_one_meaning(project, query, register)
    entry = None if register is None else find_entry(project.storage, register, query.name, query.renamed_from)
    former = None if register is None or entry is None else register.find(entry.id)
    if former is not None and former != query.name:
        location = query.sink.location
        ledger = f", and the ledger of {location.shown}" if location is not None and location.ledger else ""
        fault = f"the next start renames query '{former}' to '{query.name}': its checkpoint with its state, manifest, "
        yield renaming(f"{fault}archive, quarantine and history{ledger}, continue", query.where)


def nothing_kept(project: Project, query: Query, register: Register | None) -> Iterator[Finding]:
    """That a query that is said to be renamed begins with its sources, since no former name is known."""
    entry = None if register is None else find_entry(project.storage, register, query.name, query.renamed_from)
    if query.renamed_from and (entry is None or not has_run(layout_of_entry(project.storage, query.name, entry))):
        named_so = " or ".join(f"'{name}'" for name in query.renamed_from)
        yield Finding(
            code="HR559",
            what=f"query '{query.name}' is renamed from {named_so}, and nothing is kept here by that name: it begins "
            "with its sources",
            fix="nothing, if it has never run here; else look whether `storage` is the right directory",
            where=query.where,
        )


def require_one_meaning(project: Project, query: Query, register: Register | None) -> None:
    """Raise CheckpointError if more than one query of the names that `query` has, or had, has run."""
    former = [name for name in query.renamed_from if register is not None and name in register.queries]
    if register is None or not former:
        return
    names = [name for name in (*former, query.name) if name in register.queries]
    run = [name for name in names if has_run(layout_of_entry(project.storage, name, register.queries[name]))]
    if len(run) < 2:
        return
    first, second = run[0], run[1]
    if second == query.name:
        fault = f"'{first}', from which it is renamed, and '{second}' itself have both run"
        fix = (
            f"remove renamed_from, and '{second}' continues by itself; or give the query that is to continue '{first}' "
        )
        fix += "another name"
    else:
        fault = f"'{first}' and '{second}', from which it is renamed, have both run"
        fix = "name the one in renamed_from whose checkpoint it is to continue"
    cannot = f"query '{query.name}' cannot be renamed: {fault}"
    raise CheckpointError(code="HR549", what=cannot, fix=fix, where=query.where)


def renaming(what: str, where: Where) -> Finding:
    """That a name is changed, or was, as `renamed_from` asks for."""
    fix = "nothing: renamed_from may stay, or go once the rename was run everywhere"
    return Finding(code="HR559", what=what, fix=fix, where=where)


def sink_context(
    project: Project, query: Query, layout: QueryLayout, *, register: Register | None = None, **more: Any
) -> SinkContext:
    """What the sink of `query` is given of a generation; register: None where it is still to be read."""
    return SinkContext(
        query=query.name,
        query_id=layout.query_id,
        generation=layout.generation,
        mode=query.mode,
        checkpoint=layout.checkpoint,
        mark=layout.head,
        **context_facts(project, register),
        **more,
    )


def context_facts(project: Project, register: Register | None = None) -> dict[str, Any]:
    """What a SinkContext holds of the project; nothing before its first start."""
    register = register or read_register(project.storage)
    if register is None:
        return {}
    # A project that was moved may not be registered by a look.
    return {
        "application": register.application,
        "project": register.project,
        "roots": tuple(map(Path, dict.fromkeys((*_roots(project)[::-1], *reversed(register.roots))))),
        "rebuilds": project.is_rebuild,
    }


def _roots(project: Project) -> tuple[str, ...]:
    """Where the project lies; Spark names files as it was named, which may be by way of a link."""
    return tuple(dict.fromkeys((str(project.root.resolve()), str(project.root.absolute()))))
