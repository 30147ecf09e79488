"""Queries, sources and tables that are declared under a new name, and where the sink of a query writes.

A start lets them have the new name. A sink that is another one over an old checkpoint
would begin with the next batch, and lack all that the former one has: it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.contract import Sink, SinkLocation
from headrace.errors import CheckpointError, Finding, Where
from headrace.generations.blame import attribute_errors
from headrace.generations.facts import StartFacts, renamed_sources
from headrace.generations.log import LogRecord, QueryLayout
from headrace.generations.register import Register, find_entry, has_run, layout_of, layout_of_entry, read_register
from headrace.model import Project, Query
from headrace.spark.jvm.session_conf import apply_settings
from headrace.starter.judge import require_same_result
from headrace.starter.state_store import query_settings
from headrace.storage import json_record
from headrace.storage.durable import replace_file
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def apply_renames(facts: StartFacts, spark: SparkSession, *, rebuilds: bool = False) -> tuple[Finding, ...]:
    """Let the table of a query, which the caller has locked, have the name that is declared now; report what it has.

    The query itself gets its name by `enter_name`, once all else was looked at.

    rebuilds: its result is about to be computed again, so that the query may mean something else. Raises CheckFailed,
    CheckpointError, SinkError or PlatformError.
    """
    project, query = facts.project, facts.query
    if not query.sink.facts.durable:
        return ()
    _require_one_meaning(project, query, facts.register)
    if not rebuilds and table_before(project, query, facts.layout) is not None:
        require_same_sink(facts)
        with apply_settings(spark, query_settings(facts, spark)):
            require_same_result(facts, spark)
    notes = () if rebuilds else tuple(_report_renamed(project, query, facts.register))
    return (*notes, *report_unknown_former(project, query, facts.register), *rename_table(facts, lambda: spark))


def rename_table(facts: StartFacts, session: Callable[[], SparkSession]) -> tuple[Finding, ...]:
    """Let the table of a query, which the caller has locked, have its new name; return what a user should know.

    Raises CheckpointError or SinkError. Called again after a crash, it ends what was begun.
    """
    project, query, layout = facts.project, facts.query, facts.layout
    if not query.sink.facts.durable or query.sink.rename is None:
        return ()
    if table_before(project, query, layout) is None:
        return ()
    record = layout.record or LogRecord()
    kept = any(former.generation != layout.generation for former in record.kept)
    if kept or (record.building is not None and not record.is_between):
        why = "a former result is kept" if kept else "a rebuild is kept"
        fault = f"the table of query '{query.name}' cannot be renamed: {why} under its old name"
        fix = f"name it so again, and end that first: headrace change discard {query.name}"
        raise CheckpointError(code="HR549", what=fault, fix=fix, where=query.where)
    notes = tuple(_table_renaming(project, query, layout))
    with attribute_errors(query):
        query.sink.rename.rename_table(facts.run, session)
    enter_sink(project, query, layout)
    return notes


def _report_renamed(project: Project, query: Query, register: Register | None) -> Iterator[Finding]:
    """Yield that a start of the query renames it in the register."""
    if register is None or project.is_rebuild:
        return
    entry = find_entry(project.storage, register, query.name, query.renamed_from)
    own = (name for name in query.renamed_from if entry is not None and register.queries.get(name) == entry)
    for former in own:
        fault = f"query '{query.name}' continues what ran as '{former}': its checkpoint, archive, history and ledger"
        yield _renaming(fault, query.where)


def report_unknown_former(project: Project, query: Query, register: Register | None) -> Iterator[Finding]:
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


def _require_one_meaning(project: Project, query: Query, register: Register | None) -> None:
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


def _renaming(what: str, where: Where) -> Finding:
    """That a name is changed, or was, as `renamed_from` asks for."""
    fix = "nothing: renamed_from may stay, or go once the rename was run everywhere"
    return Finding(code="HR559", what=what, fix=fix, where=where)


def list_source_renames(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """Yield what the next start of `query` renames. Raises CheckpointError, as `read_source_names`."""
    for source, former in renamed_sources(project, query, layout):
        fault = f"source '{former}' of query '{query.name}' is renamed to '{source.name}', and resumes at the same "
        yield _renaming(f"{fault}offsets", source.where)


def require_same_sink(facts: StartFacts) -> None:
    """Raise CheckpointError if the checkpoint's batches were written to another place than the sink names now.

    A checkpoint without a record, as version 0.1.0 made them, is taken; a ledger next to the rows shows it. A sink
    that a query may begin with any batch is judged with all else that has changed, where what ran is known.
    """
    project, query, layout = facts.project, facts.query, facts.layout
    if query.sink.facts.begins_anywhere and any(form.form is not None for form in facts.revisions[-1:]):
        return
    last, now = facts.last_batch, query.sink.location
    former = former_location(project, query, layout)
    if last is None or former is None or now is None:
        return
    shown = _within(project, now.shown)
    raise CheckpointError(
        code="HR410",
        what=f"query '{query.name}' has written its batches up to {last} to {former}; {shown} would begin "
        f"with the next one and lack what is there",
        fix="name the former sink again, or reset the query (headrace reset QUERY); if all rows were moved to the "
        "new place, remove "
        f"{layout.sink} and start again",
        where=query.where,
    )


def table_before(project: Project, query: Query, layout: QueryLayout) -> Sink | None:
    """The sink by the former name of its table, if the checkpoint's batches are known to lie there; None otherwise.

    Without a record the sink is asked which of the two tables has them. Raises CheckpointError as `former_location`.
    """
    sink = query.sink
    former = None if sink.rename is None else sink.rename.former
    if former is None or former.location is None or sink.location is None:
        return None
    if (kept := _read_record(layout.sink)) is None:
        return former if Checkpoint(layout.checkpoint).last_batch is not None else None
    named = (kept["kind"], kept["name"]) == (query.sink_kind, former.location.name)
    # A table of a lake has no name but its place.
    there = former.location.name != sink.location.name or set(kept["systems"]) == set(former.location.systems)
    return former if named and there else None


def _table_renaming(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """Yield that the start renames the table."""
    former, now = table_before(project, query, layout), query.sink.location
    if former is not None and former.location is not None and now is not None:
        fault = f"the start of query '{query.name}' renames {former.location.shown}, with its ledger, to {now.shown}"
        yield _renaming(fault, query.where)


def waiting_renames(project: Project, query: Query) -> Iterator[Finding]:
    """Yield what is renamed in the register and in the sink. Raises CheckpointError."""
    if query.sink.facts.durable and query.renamed_from:
        register = read_register(project.storage)
        _require_one_meaning(project, query, register)
        yield from _report_renamed(project, query, register)
    yield from _table_renaming(project, query, layout_of(project, query))


def former_location(project: Project, query: Query, layout: QueryLayout) -> str | None:
    """Where the batches of `layout` were written, in words, if its sink names another place now; None: it is the same.

    None as well where it is not known. Raises CheckpointError for a record that cannot be read.
    """
    kept, now = _read_record(layout.sink), query.sink.location
    if kept is None or now is None:
        return None
    same = (kept["kind"], kept["name"]) == (query.sink_kind, now.name)
    if same and (now.ledger or set(kept["systems"]) & set(_systems(project, now))):
        return None
    if table_before(project, query, layout) is not None:
        return None  # It is renamed at the start.
    return str(kept["shown"])


def enter_sink(project: Project, query: Query, layout: QueryLayout) -> None:
    """Keep where the sink writes, before the first batch can come in."""
    now = query.sink.location
    if now is None:
        return
    record = {
        "kind": query.sink_kind,
        "name": now.name,
        "systems": list(_systems(project, now)),
        "shown": _within(project, now.shown),
    }
    if _read_record(layout.sink) == record:
        return
    with writing_to(layout.home):
        replace_file(layout.sink, json.dumps(record, ensure_ascii=False) + "\n")


def _read_record(file: Path) -> Mapping[str, Any] | None:
    """The record, None if there is none."""

    def damage(why: str) -> CheckpointError:
        fault = f"'{file}', which records where the batches were written, cannot be read: {why}"
        fix = "restore it; or remove it, if the sink is what it was: a new one is made"
        return CheckpointError(code="HR410", what=fault, fix=fix)

    record = json_record.read(file, lambda facts: facts, damage)
    if isinstance(record, dict) and {"kind", "name", "systems", "shown"} <= record.keys():
        return record
    return None


def _systems(project: Project, location: SinkLocation) -> tuple[str, ...]:
    """Paths inside the project are kept from its root on, so that a project may be moved."""
    return tuple(_within(project, system) for system in location.systems)


def _within(project: Project, text: str) -> str:
    return project.redacted(text).replace(f"{project.root.absolute()}/", "").replace(f"{project.root}/", "")
