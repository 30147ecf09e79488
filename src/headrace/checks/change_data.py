"""What is wrong with a query of change data, seen without Spark, and the options that its sink applies changes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headrace.contract import ChangeOptions
from headrace.errors import Finding, nearest
from headrace.model import Continuous, NamedSource, Project, Query, RealTime, View
from headrace.model.change_data import ChangeData
from headrace.spark import ddl

# What the sequence of a source that gives change data is, and of one whose columns are known to Spark alone.
_OF_CHANGE_DATA, _UNDECLARED = "DECIMAL(38,0)", "BIGINT"
# The types of Spark, as its JSON has them, that have one order in all systems, and the type that holds each.
_ORDERED = {
    **dict.fromkeys(("byte", "short", "integer", "long"), "BIGINT"),
    "timestamp": "TIMESTAMP",
    "date": "DATE",
    "string": "STRING",
}
_ADVICE = {
    "timestamp_ntz": "declare it TIMESTAMP: without a time zone, times of two zones have no order",
    **dict.fromkeys(("float", "double"), "declare it BIGINT or DECIMAL(38,0): NaN and rounded numbers have no order"),
}


def bind_changes(project: Project) -> Project:
    """Return the project in which the sinks of queries of change data apply changes; what is wrong stays as it is.

    A row without a sequence or a key is a bad row of its source, which judges it by its schema.
    """
    sources = dict(project.sources)
    for query in project.queries.values():
        if query.cdc is not None:
            for source in project.sources_of(query):
                sources[source.name] = _require_values(query.cdc, sources[source.name])
    project = replace(project, sources=sources)
    return replace(project, queries={name: _bind(project, query) for name, query in project.queries.items()})


def _require_values(cdc: ChangeData, source: NamedSource) -> NamedSource:
    types, schema = declared_types(source), getattr(source.connector, "schema", None)
    if not types or not isinstance(schema, str) or schema != source.connector.declared_schema():
        return source
    if source.connector.facts.change_data:
        # Keys that the function renames are not seen here.
        return (
            replace(source, connector=source.connector.with_keys(cdc.keys)) if types.keys() >= {*cdc.keys} else source
        )
    # Rows that delete all older ones have no key.
    names = {*cdc.sequence_by, *(cdc.keys if cdc.apply_as_truncates is None else ())} & types.keys()
    required = ddl.with_not_null(schema, names)
    connector: Any = source.connector
    return source if required == schema else replace(source, connector=replace(connector, schema=required))


def _bind(project: Project, query: Query) -> Query:
    changes = query.sink.changes
    if query.cdc is None or changes is None:
        return query
    return replace(query, sink=changes.bind(options_of(project, query, query.cdc)))


def options_of(project: Project, query: Query, cdc: ChangeData) -> ChangeOptions:
    """Return how the sink applies the changes of `query`."""
    return ChangeOptions(
        keys=cdc.keys,
        sequence_type=sequence_type(project, query, cdc),
        scd_type=cdc.stored_as_scd_type,
        tracked=cdc.track_history_column_list,
        untracked=cdc.track_history_except_column_list or (),
        ignore_null_updates=cdc.ignore_null_updates,
        refuses_gaps=not cdc.ignore_null_updates
        and any(source.connector.facts.change_data for source in project.sources_of(query)),
        keep_deletes=round(cdc.keep_deletes.seconds),
        start_column=cdc.start_column,
        end_column=cdc.end_column,
    )


def sequence_types(project: Project, query: Query, cdc: ChangeData) -> tuple[str, ...]:
    """Return the types by which the changes of `query` are ordered; BIGINT where one cannot be seen without Spark."""
    sources = project.sources_of(query)
    if not cdc.sequence_by:
        gives_changes = any(source.connector.facts.change_data for source in sources)
        return (_OF_CHANGE_DATA if gives_changes else _UNDECLARED,)
    types = declared_types(sources[0]) if sources else {}
    return tuple(ordered_type(types.get(name)) or _UNDECLARED for name in cdc.sequence_by)


def sequence_type(project: Project, query: Query, cdc: ChangeData) -> str:
    """Return the type of the sequence; several columns are one text that has their order."""
    types = sequence_types(project, query, cdc)
    return types[0] if len(types) == 1 else "STRING"


def ordered_type(kind: Any) -> str | None:
    """Return the type of a sequence that holds values of `kind`, in Spark's JSON; None: they have no order."""
    if isinstance(kind, str) and kind.startswith("decimal(") and kind.endswith(",0)"):
        return "DECIMAL(38,0)"
    return _ORDERED.get(kind) if isinstance(kind, str) else None


def declared_types(source: NamedSource) -> Mapping[str, Any]:
    """Return the types, in Spark's JSON, of the columns that the source's schema declares; empty without one."""
    try:
        return {str(column["name"]): column["type"] for column in ddl.columns(source.connector.declared_schema() or "")}
    except ddl.SchemaError:
        return {}


def check_change_data(project: Project, query: Query) -> Iterator[Finding]:
    """Report what keeps a query of change data from running, whatever its function does."""
    cdc = query.cdc
    if cdc is None:
        yield from _check_plain(project, query)
        return
    if query.sink.changes is None:
        yield query.finding(
            "HR298",
            f"applies changes, and the sink {query.sink_kind} cannot replace and delete rows by key in the order of a "
            "sequence" + ("" if "update" in query.sink.facts.modes else ": it has no update mode"),
            "write to postgres, mysql, sqlite or delta",
        )
    if isinstance(query.trigger, (Continuous, RealTime)):
        fix = "use the trigger every, available-now or none"
        yield query.finding("HR261", "applies changes batch by batch, which its trigger does not make", fix)
    sources = project.sources_of(query)
    tables = [thing.name for thing in project.upstream(query.transform) if not isinstance(thing, (NamedSource, View))]
    if len(sources) > 1 or tables:
        names = ", ".join(f"'{name}'" for name in (*(source.name for source in sources), *tables))
        yield query.finding(
            "HR297",
            f"applies the changes of one table, and reads {names}",
            "read one source; join its copy where it is read, or in another query",
        )
    if len(sources) == 1:
        yield from _check_source(query, cdc, sources[0])
    yield from _check_columns(query, cdc)


def _check_plain(project: Project, query: Query) -> Iterator[Finding]:
    if query.delete_when is not None:
        yield from _check_deletes(query)
    for source in project.sources_of(query):
        if source.connector.facts.change_data:
            yield query.finding(
                "HR297",
                f"takes the changes of source '{source.name}' for rows: deletes and former rows would count as rows",
                "declare it with @hr.cdc, or `cdc:` in YAML, and read its copy in other queries",
                severity="warning",
            )


def _check_deletes(query: Query) -> Iterator[Finding]:
    """Report what keeps rows of the result from being deleted."""
    facts, mode = query.sink.facts, query.mode
    if mode != "update":
        why = "a row that was written stays" if mode == "append" else "each batch has the whole result"
        problem = f"has delete_when, and {mode} mode, in which {why}"
        yield query.finding("HR298", problem, "set mode to update, or filter such rows out of the result")
    elif not facts.deletes:
        problem = (
            f"has delete_when, and the sink {query.sink_kind} cannot delete rows by key in the batch's transaction"
        )
        yield query.finding(
            "HR298", problem, "write to postgres, mysql or sqlite, or filter the rows where they are read"
        )


def _check_source(query: Query, cdc: ChangeData, source: NamedSource) -> Iterator[Finding]:
    types, gives_changes = declared_types(source), source.connector.facts.change_data
    if not cdc.sequence_by and not gives_changes:
        fix = "name the column that grows with each change, as sequence_by='version'"
        yield query.finding("HR299", f"has no sequence_by, and source '{source.name}' says no order itself", fix)
    if cdc.sequence_by and source.connector.facts.own_order:
        problem = f"has sequence_by, and source '{source.name}' sends with a delete the row that it deletes"
        yield query.finding("HR299", problem, "leave sequence_by out: the source says the order of its changes itself")
    if len(cdc.sequence_by) > 1 and cdc.stored_as_scd_type == 2:
        problem = "keeps a history by several columns, and a row's time is stored as one value"
        yield query.finding("HR299", problem, "name one column in sequence_by, perhaps computed in a view")
    for name in cdc.sequence_by if types else ():
        if name not in types:
            problem = f"has the sequence_by '{name}', no column of '{source.name}'"
            yield query.finding("HR214", problem, nearest(name, types))
        elif ordered_type(types[name]) is None:
            yield no_order(query, name, types[name])
    for option in ("apply_as_deletes", "apply_as_truncates"):
        if gives_changes and getattr(cdc, option) is not None:
            fix = f"leave {option} out"
            yield query.finding("HR299", f"has {option}, and source '{source.name}' says itself what is deleted", fix)


def no_order(query: Query, column: str, kind: Any) -> Finding:
    """Return the finding for a column whose type `kind`, in Spark's JSON, cannot order changes."""
    word = kind if isinstance(kind, str) else kind["type"]
    fix = "name a column of the type BIGINT, DECIMAL(38,0), TIMESTAMP, DATE or STRING"
    problem = f"orders changes by '{column}' of the type {word.upper()}, whose values have no order in all databases"
    return query.finding("HR299", problem, _ADVICE.get(word, fix))


def _check_columns(query: Query, cdc: ChangeData) -> Iterator[Finding]:
    """Report lists of columns that contradict each other."""
    lists = {
        "column_list": [name for name in cdc.keys if cdc.column_list is not None and name not in cdc.column_list],
        "except_column_list": [name for name in cdc.keys if name in (cdc.except_column_list or ())],
    }
    for option, names in lists.items():
        for name in names:
            problem = f"does not write its key '{name}' (cdc, {option}), by which a row is found"
            yield query.finding("HR214", problem, f"{'add it to' if option == 'column_list' else 'remove it from'} it")
    if cdc.start_column.lower() == cdc.end_column.lower():
        yield query.finding("HR109", f"calls both ends of a row's time '{cdc.start_column}'", "name them differently")


def check_change_columns(query: Query, cdc: ChangeData, columns: tuple[str, ...]) -> Iterator[Finding]:
    """Report the columns that the options name and that the function, which gives `columns`, does not."""
    for option in (
        "keys",
        "column_list",
        "except_column_list",
        "track_history_column_list",
        "track_history_except_column_list",
    ):
        for name in getattr(cdc, option) or ():
            if name not in columns:
                problem = f"names the column '{name}' (cdc, {option}), which its function does not give"
                yield query.finding("HR214", problem, nearest(name, columns))
    if cdc.stored_as_scd_type == 2:
        for name in (cdc.start_column, cdc.end_column):
            if name.lower() in {column.lower() for column in columns}:
                fix = "name it otherwise with start_column and end_column"
                yield query.finding("HR109", f"gives the column '{name}', in which a row's time is stored", fix)
