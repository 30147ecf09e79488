"""The ends of a query as data: what tells its sources and its sink from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeAlias, cast

from headrace.contract import Sink
from headrace.contract import Source as SourceConnector
from headrace.model import Project, Query, Source

# Keeps what a callable means, and gives what stands for it.
Kept: TypeAlias = Callable[[Any], str]
# Of a source's options, the schema counts as far as columns of it are read, which the plan tells.
_TOLD_BY_THE_PLAN = ("schema", "infer_schema")
# Parts of an identity that a source may change without giving other rows.
_SYSTEM = ("system", "format", "server", "servers")
# What Spark's readers and writers take if an option is not given, and other names of the same option.
_BY_DEFAULT = {
    ("header", "false"),
    ("kafka.isolation.level", "read_uncommitted"),
    ("multiline", "false"),
    ("recursivefilelookup", "false"),
    ("sep", ","),
}
_ALIASES = {"delimiter": "sep", "charset": "encoding"}


def source_facts(project: Project, source: Source, kept: Kept) -> dict[str, Any]:
    """What tells a source from others: its kind, its place, and the options that change its rows."""
    connector = source.connector
    described: dict[str, Any] = {"kind": source.kind}
    options = dict(_options(project, connector, kept))
    places = [value for name, value in options.items() if name in connector.place_options]
    described |= {name: value for name, value in options.items() if name not in connector.place_options}
    if places:
        described["place"] = _place(project, connector) or (places[0] if len(places) == 1 else places)
    schema = connector.declared_schema()
    if schema is not None and connector.quarantines:
        described["judged columns"] = schema_fields(schema)
    elif schema is not None and connector.columns_by_position:
        described["columns"] = [each.split()[0] for each in schema_fields(schema)]
    return described


def sink_facts(project: Project, query: Query, kept: Kept) -> dict[str, Any]:
    """What tells a sink from others: its kind, its place, its key, its layout, its function, how it takes columns."""
    sink = query.sink
    described: dict[str, Any] = {
        "kind": query.sink_kind,
        "by_name": sink.columns_by_name,
        "begins_anywhere": sink.begins_anywhere,
    }
    described |= place_of(project, sink)
    key = getattr(sink, "key", None)
    if key:
        # A table's key is a set; of a message it is a text.
        described["key"] = list(key) if sink.begins_anywhere else sorted(key)
    for name in sink.layout_options:
        value = getattr(sink, name)
        if isinstance(value, Mapping):
            described |= {f"{name} {option}": text for option, text in plain_options(value) if option != "compression"}
        elif value:
            described[name] = list(value) if isinstance(value, (list, tuple)) else str(value)
    function = getattr(sink, "function", None)
    if callable(function):
        described["function"] = kept(function)
    return described


def place_of(project: Project, sink: Sink) -> dict[str, Any]:
    """What of a form tells where its sink writes."""
    location = sink.location
    if location is None:
        return {}
    return {
        "place": within(project, location.name),
        "systems": [within(project, system) for system in location.systems],
    }


def within(project: Project, text: str) -> str:
    """`text` with the project's directory left out, so that a project may be moved, and without secrets."""
    shown = project.redacted(text)
    for root in (str(project.root.resolve()), str(project.root.absolute()), str(project.root)):
        shown = shown.replace(f"{root}/", "")
    return shown


def plain_options(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Spark's options, whose names know no case, in one spelling and without what would be so anyway."""
    for given, value in sorted(options.items()):
        name = _ALIASES.get(given.lower(), given.lower())
        text = str(value)
        text = text.lower() if text.lower() in ("true", "false") else text
        if (name, text) not in _BY_DEFAULT:
            yield name, text


def schema_fields(schema: str) -> list[str]:
    """The columns of a DDL text, each with its type; what is no DDL as it is."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = cast(StructType, StructType.fromDDL(schema))
    except (PySparkException, ValueError):
        return [schema]
    return [f"{each.name} {each.dataType.simpleString()}{'' if each.nullable else ' not null'}" for each in found]


def _place(project: Project, connector: SourceConnector) -> Any:
    """The directory, the table or the topics that a source reads, in one spelling."""
    described = {key: value for key, value in (connector.identity() or {}).items() if key not in _SYSTEM}
    found = [within(project, each) if isinstance(each, str) else each for each in described.values()]
    return found[0] if len(found) == 1 else found


def _options(project: Project, connector: SourceConnector, kept: Kept) -> Iterator[tuple[str, Any]]:
    for option in fields(cast(Any, connector)):
        value = getattr(connector, option.name)
        if option.name in _TOLD_BY_THE_PLAN or value in (None, "", (), {}):
            continue
        if option.name in connector.tuning_options:
            if isinstance(value, Mapping):
                yield from ((f"{option.name} {name}", text) for name, text in _telling(connector, value))
        elif isinstance(value, Mapping):
            for name, text in plain_options(value) if option.name == "options" else sorted(value.items()):
                yield f"{option.name} {name}", within(project, str(text))
        elif isinstance(value, (list, tuple)):
            yield option.name, [within(project, str(each)) for each in value]
        elif isinstance(value, (str, int, float, bool)):
            text = within(project, str(value))
            yield option.name, text.removeprefix("./").rstrip("/") if option.name in connector.place_options else text
        elif callable(value):
            yield f"{option.name}, its code", kept(value)
        else:
            yield option.name, type(value).__qualname__


def _telling(connector: SourceConnector, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Those of the system's own options that decide which rows there are."""
    yield from ((name, text) for name, text in plain_options(options) if name in connector.row_options)
