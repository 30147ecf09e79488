"""Which query of a project is which: its id and its directory, for ever, by the name that it has now.

The register is a log of numbered records, of which the newest holds the whole standing. Each directory of a query holds
the same facts by its first name, so that a lost register can be made from them. A query is entered at its first start,
and under another name at the start that declares it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckFailed, CheckpointError, Finding, PlatformError, Where
from headrace.generations.log import QUERIES, QUERY_FILE, QueryLayout, lost_directory, newest_of, unclear_storage
from headrace.model import Project, Query
from headrace.storage import json_record, numbered
from headrace.storage.durable import create_file, names_in
from headrace.storage.private import make_private, writing_to

FOLDER = "register"
# What version 0.1.0 kept in place of the register.
FORMER_FILE = "application.json"
_LOCKS = ("driver.lock", "rebuild.lock")
_DIGITS_OF_ID = 8


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A query: its id, its directory below `queries`, and the names that it had before, the newest last."""

    id: str
    directory: str
    former: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Register:
    """application: a UUID; a copy of the storage has the same. roots: every place that the project was run from.

    number: of the record, 0 for one that is not written yet.
    """

    application: str
    project: str
    roots: tuple[str, ...]
    queries: Mapping[str, Entry] = field(default_factory=dict)
    number: int = 0

    def find(self, query_id: str) -> str | None:
        """The name that the query of this id has now."""
        return next((name for name, entry in self.queries.items() if entry.id == query_id), None)


def read_register(storage: Path) -> Register | None:
    """The newest record; None in a storage that no query has used.

    Raises CheckpointError for a storage of version 0.1.0 and for a lost register, and PlatformError for a record that
    cannot be read: an older one is never used in its place.
    """
    register = numbered.read_newest(storage / FOLDER, _register_of, _damage)
    if register is None and (unknown := _unknown_use(storage)) is not None:
        # The first start of all may have registered what is there meanwhile.
        register = numbered.read_newest(storage / FOLDER, _register_of, _damage)
        if register is None:
            raise CheckpointError(unknown)
    return register


def _damage(file: Path) -> json_record.Damaged:
    fault = "the newest record of the register, which says which query is which, cannot be read"
    fix = "restore it from a backup; an older record must not be used in its place"
    return json_record.Damaged(file=file, code="HR584", what=fault, fix=fix, error=PlatformError)


def append(storage: Path, register: Register) -> bool:
    """Write the record that follows `register.number`; False if another has written it. Raises PlatformError."""
    facts = asdict(register)
    del facts["number"]
    with writing_to(storage):
        make_private(storage)
        (storage / FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
        return numbered.create(storage / FOLDER, register.number + 1, facts)


def with_new_query(storage: Path, register: Register, query: str, former: Sequence[str] = ()) -> Register | None:
    """The register with a query that it does not know, whose directory is made; None: another process has done so.

    A directory that a crash has left before it was registered is taken. Raises CheckpointError where one of the query's
    name, or of a `former` one, was used and is not registered, and PlatformError.
    """
    require_known(storage, register, query, former)
    for folder in _list_unregistered(storage, register, query):
        if _is_used(folder):  # By now.
            return None
        if (folder / QUERY_FILE).exists():
            _, entry, facts = _facts_in(folder)
            application = register.application if register.number else str(facts["application"])
            return replace(register, application=application, queries={**register.queries, query: entry})
    query_id = str(uuid.uuid4())
    entry = Entry(id=query_id, directory=f"{query}-{query_id[:_DIGITS_OF_ID]}")
    enter_directory(storage, entry, register, query)
    return replace(register, queries={**register.queries, query: entry})


def require_known(storage: Path, register: Register, query: str, former: Sequence[str] = ()) -> None:
    """Raise CheckpointError where a directory of one of the query's names was used that the register does not know."""
    for folder in chain.from_iterable(_list_unregistered(storage, register, name) for name in (query, *former)):
        if _is_used(folder) and (read_register(storage) or register).number == register.number:
            raise _not_known(storage, folder, query)


def enter_directory(storage: Path, entry: Entry, register: Register, query: str) -> None:
    """Make the directory of a query, with the facts from which the register can be made. Raises PlatformError."""
    folder = storage / QUERIES / entry.directory
    facts = {"id": entry.id, "query": query, "application": register.application, "project": register.project}
    with writing_to(folder):
        make_private(storage)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_file(folder / QUERY_FILE, json.dumps(facts, indent=2) + "\n")


def rebuild_register(storage: Path) -> Register:
    """Make a lost register from the directories of the queries, by their first names.

    Raises CheckpointError where there is a register, or where they do not say which query is which.
    """
    if numbered.numbers_in(storage / FOLDER):
        raise CheckpointError(code="HR585", what=f"the register in {storage} is there", fix="nothing: it is not lost")
    register: Register | None = None
    for name in sorted(_directories(storage)):
        folder = storage / QUERIES / name
        if not (folder / QUERY_FILE).exists():
            raise CheckpointError(
                unclear_storage(storage, f"{folder} has no {QUERY_FILE}: it was not made by this version")
            )
        if not _is_used(folder):
            continue
        query, entry, facts = _facts_in(folder)
        register = register or Register(application=facts["application"], project=facts["project"], roots=())
        if facts["application"] != register.application or query in register.queries:
            raise CheckpointError(
                unclear_storage(storage, f"{folder} is of another project, or of another query '{query}'")
            )
        register = replace(register, queries={**register.queries, query: entry})
    if register is None:
        raise CheckpointError(unclear_storage(storage, "it holds no query that has run"))
    append(storage, register)
    return register


def _unknown_use(storage: Path) -> Finding | None:
    """That queries have run, although no register says which; None: none has."""
    if (storage / FORMER_FILE).exists():
        fault = f"the storage {storage} was written by version 0.1.0, whose form is not read"
        fix = "name another `storage` and another place for each result; or empty the storage and what the sinks hold"
        where = Where(file=str(storage / FORMER_FILE))
        return Finding(code="HR585", where=where, what=fault, fix=fix)
    used = next((name for name in _directories(storage) if _is_used(storage / QUERIES / name)), None)
    if used is None:
        return None
    return unclear_storage(
        storage, f"it holds {storage / QUERIES / used}, and no register that says which query that is"
    )


def _list_unregistered(storage: Path, register: Register, query: str) -> Iterator[Path]:
    """The directories of the query's name that the register does not know."""
    registered = {entry.directory for entry in register.queries.values()}
    for name in _directories(storage):
        if name not in registered and _is_of(name, query):
            yield storage / QUERIES / name


def _not_known(storage: Path, folder: Path, query: str) -> CheckpointError:
    return CheckpointError(unclear_storage(storage, f"{folder} was query '{query}', and the register does not know it"))


def _directories(storage: Path) -> Iterator[str]:
    try:
        yield from names_in(storage / QUERIES)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # The writer reports it.
        return


def _is_of(directory: str, query: str) -> bool:
    return directory == query or re.fullmatch(rf"{re.escape(query)}-[0-9a-f]{{{_DIGITS_OF_ID}}}", directory) is not None


def _is_used(folder: Path) -> bool:
    """Whether a start has got as far as to make a generation there."""
    try:
        names = names_in(folder)
    except NotADirectoryError:
        return False
    # Another process may be writing query.json, by way of a draft whose name begins with a dot.
    return any(name not in (QUERY_FILE, "log") and not name.startswith((".", *_LOCKS)) for name in names)


def _facts_in(folder: Path) -> tuple[str, Entry, Mapping[str, Any]]:
    damaged = json_record.Damaged(
        file=folder / QUERY_FILE,
        code="HR584",
        what="the file with the id of the query cannot be read",
        fix="restore it from a backup; or remove the directory, if the query has never run",
        error=PlatformError,
    )
    facts = json_record.read(damaged.file, dict, damaged)
    if facts is None:
        raise damaged("it is not there")
    return str(facts["query"]), Entry(id=str(facts["id"]), directory=folder.name), facts


def _register_of(facts: Any) -> Register:
    queries = {
        str(name): Entry(id=str(entry["id"]), directory=str(entry["directory"]), former=tuple(entry["former"]))
        for name, entry in facts["queries"].items()
    }
    return Register(
        application=str(facts["application"]),
        project=str(facts["project"]),
        roots=tuple(map(str, facts["roots"])),
        queries=queries,
        number=int(facts["number"]),
    )


def has_run(layout: QueryLayout) -> bool:
    """Whether the query has planned a batch; one that was reset counts too."""
    newest = newest_of(layout)
    if newest.record is not None and newest.record.kept:
        return True
    return Checkpoint(newest.checkpoint).last_batch is not None


def layout_named(storage: Path, query: str, former: Sequence[str] = ()) -> QueryLayout:
    """The first generation of the query of this name, or of that which had one of its `former` names until now.

    Raises CheckpointError and PlatformError, as `read_register`.
    """
    return layout_in(storage, read_register(storage), query, former)


def layout_in(storage: Path, register: Register | None, query: str, former: Sequence[str] = ()) -> QueryLayout:
    """Return what `layout_named` does, by a register that was read."""
    entry = None if register is None else find_entry(storage, register, query, former)
    if entry is None and register is not None:
        require_known(storage, register, query, former)
    return layout_of_entry(storage, query, entry)


def layout_of_entry(storage: Path, query: str, entry: Entry | None) -> QueryLayout:
    """The first generation of a registered query; None: of one whose directory is still to be made."""
    directory, query_id = (query, "") if entry is None else (entry.directory, entry.id)
    return QueryLayout(storage=storage, query=query, directory=directory, query_id=query_id)


def find_entry(storage: Path, register: Register, query: str, former: Sequence[str]) -> Entry | None:
    """What the register knows the query by: its name, or the first of its `former` names that is known.

    What a start by the new name has left that planned no batch gives way to a former name that has run.
    """
    own = register.queries.get(query)
    entries = [register.queries[name] for name in former if name in register.queries]
    if not entries or (own is not None and has_run(layout_of_entry(storage, query, own))):
        return own
    return next((entry for entry in entries if has_run(layout_of_entry(storage, query, entry))), own or entries[0])


def layout_of(project: Project, query: Query, register: Register | None = None) -> QueryLayout:
    """Where the generation lies that a query runs as; for its rebuild, the one that is being built.

    register: None where it is still to be read. Raises CheckpointError, and CheckFailed for a rebuild that another
    command has discarded.
    """
    register = register or read_register(project.storage)
    layout = newest_of(layout_in(project.storage, register, query.name, query.renamed_from))
    if project.rebuilds != query.name:
        return layout
    if layout.record is None or layout.record.building is None:
        fault = f"the rebuild of query '{query.name}' is gone: another command has discarded it, or put it in place"
        raise CheckFailed(code="HR526", what=fault, fix=f"look how the query stands: headrace status {query.name}")
    return layout.at(layout.record.building)


def register_project(project: Project) -> Register:
    """The project's register, begun when there is none, with where the project lies now. Raises as `register_query`."""
    while True:
        register, stands = _due_register(project)
        if stands or append(project.storage, register):
            return register if stands else replace(register, number=register.number + 1)


def _due_register(project: Project) -> tuple[Register, bool]:
    """The register with where the project lies now, and whether its newest record says so already."""
    stored, here = read_register(project.storage), root_places(project)
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


def enter_name(project: Project, query: Query, layout: QueryLayout) -> None:
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


def root_places(project: Project) -> tuple[str, ...]:
    """Where the project lies; Spark names files as it was named, which may be by way of a link."""
    return tuple(dict.fromkeys((str(project.root.resolve()), str(project.root.absolute()))))
