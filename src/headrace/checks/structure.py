"""What is wrong with a project's shape, seen without Spark: names, arrows, sinks, connectors' options."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from headrace.checkpoint.sources import source_of
from headrace.checks.change_data import check_change_data
from headrace.checks.closures import check_shared_variables
from headrace.checks.locations import (
    NAME,
    check_cluster_paths,
    check_permissions,
    check_remote_paths,
    check_renames,
    check_storage,
    find_conflicts,
    is_same_place,
)
from headrace.checks.triggers import check_intervals, check_live_sources, check_refreshed_tables, check_triggers
from headrace.contract import OptionError
from headrace.errors import Finding, Where, nearest
from headrace.model import Counter, NamedSource, Project, Query, SqlTransform, Table, Transform, View
from headrace.model.spark_settings import nearest_setting
from headrace.spark import ddl

LONGEST_NAME = 120


def check_structure(project: Project) -> Iterator[Finding]:
    """Report every fault of the project's shape, by subject."""
    yield from _check_queries(project)
    yield from _check_target(project)
    yield from check_cluster_paths(project)
    yield from check_declared(project)
    yield from check_remote_paths(project)
    for _, finding in check_renames(project):
        yield finding
    yield from _check_unused(project)


def check_declared(
    project: Project,
    *,
    faulty: Collection[str] | None = (),
    unsound: Collection[str] = (),
    incomplete: Mapping[str, Transform] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Report the faults of what is declared, as it stands in the project's files; nothing else is looked at.

    faulty: names that are declared as well, and that `project` lacks for faults of their own; None: any may be.
    unsound: sources and queries that lack parts for such faults, so that their options are not looked at.
    incomplete: what queries compute that `project` lacks since their sinks have faults.
    """
    yield from _check_names(project)
    if faulty is not None:
        yield from _check_inputs(project, faulty, incomplete)
        yield from _check_streams(project, unsound)
    yield from _check_cycles(project)
    yield from check_shared_variables(project)
    yield from _check_connectors(project, unsound)
    for query in project.queries.values():
        yield from check_triggers(project, query)
        if query.name not in unsound:
            yield from check_change_data(project, query)
    yield from _check_watermarks(project)
    yield from _check_late_rows(project)
    for _, finding in find_conflicts(project):
        yield finding


Conflicts: TypeAlias = tuple[tuple[frozenset[str], Finding], ...]


def check_structure_of(
    project: Project, names: Collection[str], *, conflicts: Conflicts | None = None
) -> Iterator[Finding]:
    """Report the faults of the project's shape that keep these queries from running, whatever is wrong with others.

    conflicts: what `conflicts` gives for the whole project; pass it when asking about many queries.
    """
    findings = list(check_structure(project.only(names)))
    between = tuple(find_conflicts(project)) if conflicts is None else conflicts
    between += tuple(check_renames(project))
    findings += [finding for queries, finding in between if not queries.isdisjoint(names)]
    yield from dict.fromkeys(findings)


def _things(project: Project) -> Iterator[NamedSource | Table | View | Counter | Query]:
    yield from project.sources.values()
    yield from project.tables.values()
    yield from project.views.values()
    yield from project.counters.values()
    yield from project.queries.values()


def _check_queries(project: Project) -> Iterator[Finding]:
    if not project.queries:
        yield no_query(project)


def no_query(project: Project) -> Finding:
    """Return the finding for a project without a query."""
    example = 'queries: {NAME: {select: "SELECT ... FROM ...", sink: console}}, or @hr.query in a Python file'
    return Finding(
        code="HR128",
        what=f"the project '{project.name}' declares no query, so there is nothing to run",
        fix=f"declare one: {example}; headrace init NAME writes a project to begin with",
        where=project.target.where,
    )


def _check_target(project: Project) -> Iterator[Finding]:
    unusable = list(check_storage(project))
    yield from unusable
    yield from check_permissions(project, storage=not unusable)
    if not unusable and project.storage.exists() and not project.storage.is_dir():
        yield Finding(
            code="HR540",
            what=f"the storage {project.storage} is not a directory",
            fix="remove the file, or name another `storage`",
            where=project.target.at("storage"),
        )
    if packages := project.target.spark.get("spark.jars.packages"):
        yield Finding(
            code="HR484",
            what=f"spark.jars.packages names {packages}, which Spark fetches without comparing a SHA-256 sum",
            fix="to be sure, fetch the jars once, compare their sums, and name them in spark.jars",
            where=project.target.at("spark.jars.packages"),
        )
    yield from _check_hooks(project)
    for key in project.target.spark:
        if similar := nearest_setting(key):
            yield Finding(
                code="HR103",
                what=f"the setting {key} is unknown, and {similar} is nearly its name; Spark ignores it silently",
                fix=f"write {similar}, if that is meant",
                severity="warning",
                where=project.target.at(key),
            )


def _check_hooks(project: Project) -> Iterator[Finding]:
    """Report commands of hooks that this machine does not have; the machine that runs the project may have them."""
    for hook in project.target.operations.hooks:
        program = hook.command[0] if hook.command else ""
        if not program or shutil.which(program):
            continue
        fix = "name a program that can be executed, by its path in the project, as ./alert.sh, or by its name"
        if " " in program.strip():
            fix = f"write command: [{', '.join(program.split())}], each word by itself"
        there = "which is not a file that can be executed" if "/" in program else "which no directory of the PATH has"
        if "/" in program and not os.path.exists(program):
            there = "which is not there"
        named = f"./{os.path.relpath(program, project.root)}" if "/" in program else program
        problem = f"the command of a hook is '{named}', {there} on this machine"
        yield Finding(code="HR873", what=problem, fix=fix, where=hook.where, severity="warning")


def _check_names(project: Project) -> Iterator[Finding]:
    folded: dict[str, str] = {}
    for thing in _things(project):
        if not NAME.match(thing.name):
            yield Finding(
                code="HR254",
                what=f"the name of {thing.whose} has other characters than letters, digits and _",
                fix=f"rename it, for example to {re.sub(r'[^A-Za-z0-9_]+', '_', thing.name) or 'a_name'}",
                where=thing.where,
            )
        if len(thing.name) > LONGEST_NAME:
            yield Finding(
                code="HR254",
                what=f"the name of {thing.whose[:60]}... has {len(thing.name)} characters",
                fix=f"give it {LONGEST_NAME} at most: directories and tables are named after it",
                where=thing.where,
            )
        used = source_of(thing.name)
        if isinstance(thing, NamedSource) and used != thing.name and used in project.sources:
            yield thing.finding(
                "HR254",
                f"has the name of another use of the source '{used}'",
                f"rename it, for example to {thing.name.replace('__', '_')}",
            )
        other = folded.setdefault(thing.name.lower(), thing.whose)
        if other != thing.whose:
            yield thing.finding(
                "HR109", f"and {other} differ only by case, which Spark's SQL does not see", "rename one of the two"
            )


def _check_inputs(project: Project, faulty: Collection[str], incomplete: Mapping[str, Transform]) -> Iterator[Finding]:
    declared_names = {*project.inputs(), *project.counters, *faulty}
    asking = [
        (thing.whose, thing.transform) for thing in _things(project) if not isinstance(thing, (NamedSource, Counter))
    ]
    for whose, transform in [*asking, *((f"query '{name}'", body) for name, body in incomplete.items())]:
        for name in transform.inputs:
            if name in declared_names:
                continue
            fix = nearest(
                name, (*declared_names, "spark") if not isinstance(transform, SqlTransform) else declared_names
            )
            if name in project.queries:
                fix = "a query's result cannot be read; make what both need a view"
            elif isinstance(transform, SqlTransform) and not fix.startswith("did you mean"):
                fix = f"declare it, or name a table of Spark's catalog with its schema: default.{name} ({fix})"
            problem = f"{whose} asks for '{name}', which is not a source, table or view"
            yield Finding(code="HR204", what=problem, fix=fix, where=transform.where)


def _check_cycles(project: Project) -> Iterator[Finding]:
    """Report each cycle once, at its first member by name."""
    things: dict[str, Table | View] = {**project.tables, **project.views}
    for cycle in _find_cycles(project):
        problem = f"'{cycle[0]}' reads itself: {' -> '.join([*cycle, cycle[0]])}"
        yield Finding(code="HR251", what=problem, fix="break the circle", where=things[cycle[0]].where)


def _find_cycles(project: Project) -> Iterator[list[str]]:
    things: dict[str, Table | View] = {**project.tables, **project.views}
    reported: set[frozenset[str]] = set()
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> Iterator[list[str]]:
        if name in path:
            yield path[path.index(name) :]
        elif name in things and name not in done:
            for wanted in things[name].transform.inputs:
                yield from walk(wanted, [*path, name])
            done.add(name)

    for start in sorted(things):
        for cycle in walk(start, []):
            if frozenset(cycle) not in reported:
                reported.add(frozenset(cycle))
                yield cycle


def _check_streams(project: Project, unsound: Collection[str]) -> Iterator[Finding]:
    unclear = {*unsound, *(name for cycle in _find_cycles(project) for name in cycle)}
    for name, query in project.queries.items():
        judged = unclear.isdisjoint((name, *(thing.name for thing in project.upstream(query.transform))))
        if judged and not project.sources_of(query) and _is_resolved(project, query):
            yield query.finding(
                "HR252", "reads no source, so it is not a stream", "give it a source as an input, or make it a table"
            )
        yield from check_live_sources(project, query, query.trigger)
        yield from check_refreshed_tables(project, query, query.trigger)
    yield from check_intervals(project)
    for table in project.tables.values():
        sources = [thing.name for thing in project.upstream(table.transform) if isinstance(thing, NamedSource)]
        if sources:
            yield table.finding(
                "HR253",
                f"reads the source '{sources[0]}', which has no end",
                "make it a view, or read the data as a bounded one in the table's own function",
            )


def _is_resolved(project: Project, query: Query) -> bool:
    """Whether everything upstream is declared, so that a missing source is not a misspelt one."""
    declared_things = {**project.inputs(), **project.counters}
    things = [thing for thing in project.upstream(query.transform) if not isinstance(thing, NamedSource)]
    return all(name in declared_things for thing in (query, *things) for name in thing.transform.inputs)


def _check_connectors(project: Project, unsound: Collection[str]) -> Iterator[Finding]:
    for name, source in project.sources.items():
        for problem in source.connector.problems() if name not in unsound else ():
            yield _finding(project, problem, source.whose, source.at, source.lines)
    for name, query in project.queries.items():
        modes = query.sink.facts.modes
        if query.mode not in modes:
            yield query.finding(
                "HR255",
                f"has the output mode {query.mode}, which the sink {query.sink_kind} does not take",
                f"use {' or '.join(sorted(modes))}, or another sink",
            )
        judged = query.mode if query.mode in modes else min(modes)  # the mode's fault is reported once, above
        for problem in query.sink.problems(judged) if name not in unsound else ():
            yield _finding(project, problem, f"the sink of query '{name}'", query.sink_at, query.sink_lines)


def _finding(
    project: Project, problem: OptionError, whose: str, at: Callable[[str], Where], options: Iterable[str]
) -> Finding:
    """Return the finding of a problem, at the line of the first option that its sentence names."""
    words = re.findall(r"\w+", problem.what)
    named = min((word for word in words if word in options), key=words.index, default="")
    return Finding(
        code=problem.code,
        what=project.redacted(f"{whose}: {problem.what}"),
        fix=project.redacted(problem.fix),
        where=at(named),
        severity=problem.severity,
    )


def _check_watermarks(project: Project) -> Iterator[Finding]:
    for source in project.sources.values():
        columns = columns_of(source.connector.declared_schema() or "")
        if source.watermark is None or not columns:
            continue
        column = source.watermark.column
        folded = {name.lower(): of_type for name, of_type in columns.items()}
        of_type = folded.get(column.lower(), "timestamp")
        if of_type not in ("timestamp", "timestamp_ntz"):
            code, says = "HR218", f"no TIMESTAMP but {of_type}"
            fix = "name a column of the type TIMESTAMP, or make this one TIMESTAMP in the schema"
        elif column.lower().split(".")[0] not in folded:
            code, says, fix = "HR214", "not a column of its schema", nearest(column, columns)
        else:
            continue
        problem = f"the watermark of {source.whose} is on '{column}', which is {says}"
        yield Finding(code=code, what=problem, fix=fix, where=source.where)


def columns_of(schema: str) -> dict[str, str]:
    """Return the top-level columns of a DDL text, `a INT, b STRUCT<c: INT>`, each with Spark's word for its type.

    Empty when it is no such list.
    """
    try:
        types = {str(field["name"]): field["type"] for field in ddl.columns(schema)}
    except ddl.SchemaError:
        return {}
    return {name: str(kind["type"]) if isinstance(kind, dict) else kind for name, kind in types.items()}


def _check_late_rows(project: Project) -> Iterator[Finding]:
    """Report why late rows cannot be kept, each exactly once, where a query asks for it."""
    for query in project.queries.values():
        late = project.queries.get(query.late or "")
        for why, fix in _find_late_faults(project, query, late) if late is not None else ():
            problem = f"late rows of query '{query.name}' cannot be kept: {why}"
            yield Finding(code="HR268", what=problem, fix=fix, where=query.where)


def _find_late_faults(project: Project, query: Query, late: Query) -> Iterator[tuple[str, str]]:
    facts, place = late.sink.facts, late.sink.identity()
    if not (facts.durable and (facts.transactional or facts.idempotent)):
        fix = "use a database, files, delta, iceberg, or kafka with delivery_guarantee: exactly-once"
        yield f"a row may come twice into the sink {late.sink_kind}, or is not kept there", fix
    # Where appends are not shared, two queries that write to one place are refused as such.
    if facts.shares_appends and query.mode == "append" and is_same_place(place, query.sink.identity()):
        yield "their sink writes to the place of the result", "give them a table, a directory or a topic of their own"
    if not query.sink.facts.durable:
        why = f"the query's own sink {query.sink_kind} keeps nothing, so that each start reads all rows again"
        yield why, "use a sink that lasts, such as files or sqlite, or leave late out"
    for source in project.sources_of(query):
        connector = source.connector
        if not (connector.facts.replayable and connector.readable_as_batch):
            why = f"late rows are found by reading them again, and source '{source.name}' does not keep them"
            yield why, "read from a source that keeps its rows, or leave late out"
        if is_same_place(place, connector.identity()):
            why = f"source '{source.name}' reads what their sink writes, so that they would come again"
            yield why, "give them a table, a directory or a topic of their own"


def _check_unused(project: Project) -> Iterator[Finding]:
    used = {thing.name for query in project.queries.values() for thing in project.upstream(query.transform)}
    used |= {counter.name for query in project.queries.values() for counter in project.counters_of(query)}
    for thing in _things(project):
        if not isinstance(thing, Query) and thing.name not in used:
            yield thing.finding("HR256", "is read by no query", "remove it, or let a query ask for it by name")
