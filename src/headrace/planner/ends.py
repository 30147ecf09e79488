"""The ends of a query, its sources, sink, mode and settings: as data, and two forms of them compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeAlias, cast

from headrace.contract import Sink
from headrace.contract import Source as SourceConnector
from headrace.generations.manifest import QueryForm
from headrace.model import NamedSource, Project, Query
from headrace.planner.difference import Kind, PlanDifference, compare_functions, text_of, verdict_on_mixing
from headrace.planner.time_zones import is_same_clock

TIME_ZONE = "spark.sql.session.timeZone"

# Keeps what a callable means, and gives what stands for it.
Kept: TypeAlias = Callable[[Any], str]
# The plan shows which columns of a schema are read; only those count.
_IN_THE_PLAN = ("schema", "infer_schema")
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
# What Headrace sets where an option is not given, and what that means for a query that ran with Spark's own default.
_OUR_DEFAULTS = {
    ("options kafka.isolation.level", "read_committed"): "messages of aborted transactions are no longer read, and "
    "those that were read stay in the result: headrace rebuild leaves them out; to read them as before, set "
    "kafka.isolation.level to read_uncommitted in the source's options",
}


def source_facts(project: Project, source: NamedSource, kept: Kept) -> dict[str, Any]:
    """Return what distinguishes a source: its kind, its place, and the options that change its rows."""
    connector = source.connector
    described: dict[str, Any] = {"kind": source.kind}
    options = dict(_options(project, connector, kept))
    places = [options.pop(name) for name in [*options] if name in connector.place_options]
    described |= options
    if places:
        # The directory, the table or the topics, in one spelling.
        named = [value for key, value in (connector.identity() or {}).items() if key not in _SYSTEM]
        shown = [without_root(project, part) if isinstance(part, str) else part for part in named]
        described["place"] = _only_or_all(shown) or _only_or_all(places)
    schema = connector.declared_schema()
    if schema is not None and connector.quarantines:
        described["judged columns"] = schema_fields(schema)
    elif schema is not None and connector.columns_by_position:
        described["columns"] = [part.split()[0] for part in schema_fields(schema)]
    return described


def _only_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def sink_facts(project: Project, query: Query, kept: Kept) -> dict[str, Any]:
    """Return what distinguishes a sink: its kind, place, key, layout and function, and how it takes columns."""
    sink = query.sink
    described: dict[str, Any] = {
        "kind": query.sink_kind,
        "by_name": sink.facts.columns_by_name,
        "begins_anywhere": sink.facts.begins_anywhere,
    }
    described |= place_of(project, sink)
    key = getattr(sink, "key", None) if query.cdc is None else None
    if key:
        # A table's key is a set; of a message it is a text.
        described["key"] = list(key) if sink.facts.begins_anywhere else sorted(key)
    for name in sink.facts.layout_options:
        value = getattr(sink, name)
        if isinstance(value, Mapping):
            described |= {f"{name} {option}": text for option, text in plain_options(value) if option != "compression"}
        elif value:
            described[name] = list(value) if isinstance(value, (list, tuple)) else str(value)
    function = getattr(sink, "function", None)  # Or an object that takes rows.
    if function is not None and not isinstance(function, str):
        described["function"] = kept(function)
    return described


def place_of(project: Project, sink: Sink) -> dict[str, Any]:
    """Return the part of a form that says where its sink writes."""
    location = sink.location
    if location is None:
        return {}
    return {
        "place": without_root(project, location.name),
        "systems": [without_root(project, system) for system in location.systems],
    }


def without_root(project: Project, text: str) -> str:
    """Return `text` without the project's directory, so that a project may be moved, and without secrets."""
    shown = project.redacted(text)
    for root in (str(project.root.resolve()), str(project.root.absolute()), str(project.root)):
        shown = shown.replace(f"{root}/", "")
    return shown


def plain_options(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield Spark's options in one spelling, without defaults; their names are case-insensitive."""
    for given, value in sorted(options.items()):
        name = _ALIASES.get(given.lower(), given.lower())
        text = str(value)
        text = text.lower() if text.lower() in ("true", "false") else text
        if (name, text) not in _BY_DEFAULT:
            yield name, text


def schema_fields(schema: str) -> list[str]:
    """Return the columns of a DDL text, each with its type; other text as it is."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        parsed = cast(StructType, StructType.fromDDL(schema))
    except (PySparkException, ValueError):
        return [schema]
    return [
        f"{column.name} {column.dataType.simpleString()}{'' if column.nullable else ' not null'}" for column in parsed
    ]


def _options(project: Project, connector: SourceConnector, kept: Kept) -> Iterator[tuple[str, Any]]:
    for option in fields(cast(Any, connector)):
        value = getattr(connector, option.name)
        if option.name == "options" and isinstance(value, Mapping):
            value = {**connector.row_defaults, **{key.lower(): text for key, text in value.items()}}
        if option.name in _IN_THE_PLAN or value in (None, "", (), {}):
            continue
        if option.name in connector.tuning_options:
            # Of the system's own options, those that decide which rows there are.
            given = plain_options(value) if isinstance(value, Mapping) else ()
            yield from ((f"{option.name} {name}", text) for name, text in given if name in connector.row_options)
        elif isinstance(value, Mapping):
            for name, text in plain_options(value) if option.name == "options" else sorted(value.items()):
                yield f"{option.name} {name}", without_root(project, str(text))
        elif isinstance(value, (list, tuple)):
            yield option.name, [without_root(project, str(part)) for part in value]
        elif isinstance(value, (str, int, float, bool)):
            text = without_root(project, str(value))
            yield option.name, text.removeprefix("./").rstrip("/") if option.name in connector.place_options else text
        elif callable(value):
            yield f"{option.name}, its code", kept(value)
        else:
            yield option.name, type(value).__qualname__


def compare_ends(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    yield from _compare_sources(before, now)
    yield from _compare_sinks(before, now)
    yield from _compare_modes(before, now)
    yield from compare_settings(before, now.settings)


def find_renamed_sources(before: QueryForm, now: QueryForm) -> dict[str, str]:
    """Return the former names of sources that look renamed, by their current names."""
    gone = {name: facts for name, facts in before.sources.items() if name not in now.sources}
    new = {name: facts for name, facts in now.sources.items() if name not in before.sources}
    renamed = {}
    for name, facts in new.items():
        former = [candidate for candidate, was in gone.items() if was == facts]
        if len(former) == 1 and list(new.values()).count(facts) == 1:
            renamed[name] = former[0]
    return renamed


def _compare_sources(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    renamed = find_renamed_sources(before, now)
    for name, former in sorted(renamed.items()):
        yield PlanDifference(
            verdict="rebuild",
            about=f"source {name}",
            part=f"source '{name}'",
            before=f"'{former}', the same in all but its name",
            now=f"'{name}'",
            why="its offsets are kept under its former name, so that it would be read from its beginning",
            fix=f"this looks like '{former}' renamed: `renamed_from: {former}` at the source keeps its offsets",
        )
    for name in sorted({*before.sources, *now.sources} - {*renamed, *renamed.values()}):
        old, new = before.sources.get(name), now.sources.get(name)
        if old is not None and new is not None and old.get("kind") == new.get("kind"):
            yield from _compare_source(name, old, new, before)
            continue
        verdict, why = verdict_on_mixing(before), "its rows are added to what was made without them"
        if new is None:
            why = "no row of it is taken any more, and what was made of its rows stays"
        elif old is not None:
            verdict, why = "forbidden", "Spark cannot read the offsets of another kind of source"
        yield PlanDifference(
            verdict=verdict,
            about="" if new is None else f"source {name}",
            part=f"source '{name}'",
            before=_show_facts(old),
            now=_show_facts(new),
            why=why,
        )


def _show_facts(facts: Mapping[str, Any] | None) -> str:
    return "not read" if facts is None else ", ".join(f"{key} {text_of(value)}" for key, value in facts.items())


def _compare_source(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any], before: QueryForm
) -> Iterator[PlanDifference]:
    for key in sorted({*old, *new}):
        was, is_ = old.get(key), new.get(key)
        if was == is_ or (key in ("columns", "judged columns") and not _reads_differently(key, was, is_)):
            continue
        verdict, why = verdict_on_mixing(before), "rows from now on are read otherwise than those before"
        if was is None and (key, str(is_)) in _OUR_DEFAULTS:
            verdict, why = "safe", _OUR_DEFAULTS[key, str(is_)]
        elif key == "place" and _without_wildcard(str(was)) == _without_wildcard(str(is_)):
            verdict, why = "safe", "both name the same files of one directory"
        elif key == "place" and directory_of(str(was)) == directory_of(str(is_)):
            why = "which files are read from now on follows another pattern than which were read before"
        elif key == "place":
            why = "the checkpoint's offsets are those of the former place: what is there now counts as new, all of it"
        yield PlanDifference(
            verdict=verdict,
            about=f"source {name} {key}",
            part=f"source '{name}', {key}",
            before=text_of(was),
            now=text_of(is_),
            why=why,
        )


def _reads_differently(key: str, was: Any, is_: Any) -> bool:
    """Whether other columns change how rows are read.

    Columns that are read by position may get further ones behind them. Where each value is judged, every column counts.
    If the columns were not recorded, nothing is known; those that are read are in the plan.
    """
    if was is None or is_ is None:
        return False
    least = min(len(was), len(is_))
    return key == "judged columns" or bool(was[:least] != is_[:least])


def directory_of(path: str) -> str:
    """Return the directory that a path or a pattern begins with."""
    bare = re.split(r"[*?\[{]", path, maxsplit=1)[0]
    return path if bare == path else bare.rpartition("/")[0]


def _without_wildcard(path: str) -> str:
    """Return the directory whose files a path or a pattern takes, all or those of one ending; else the pattern."""
    return re.sub(r"/\*(\.[A-Za-z]+)?$", "", path)


def _compare_sinks(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    old, new = before.sink, now.sink
    verdict: Kind
    for key in sorted({*old, *new}):
        functions: tuple[str, ...] = ()
        # A table may be moved to another server with its ledger, which is compared by itself.
        if old.get(key) == new.get(key) or key in ("by_name", "begins_anywhere", "systems"):
            continue
        if key == "key":
            verdict, part = "rebuild", "the key of the sink"
            why = "rows that are there stay under the former key, and no batch replaces them any more"
        elif key == "function":
            # Allowed by the guide: what it means depends on the code, which alone knows what it has written.
            changes, functions = compare_functions(str(old.get(key)), str(new.get(key)), before, now)
            changed = "; ".join(changes)
            verdict, part = "safe", f"the function of the sink{': ' * bool(changed)}{changed}"
            why = "rows from now on are written by the new code"
        elif key not in ("kind", "place") and old.get("kind") == new.get("kind"):
            begun = now.sink.get("begins_anywhere")
            verdict, part = "forward" if begun else "rebuild", f"the sink, {key}"
            why = "what was written before is laid out otherwise, and readers find both"
        elif now.sink.get("begins_anywhere"):
            verdict, part = "forward", f"the sink, {key}"
            why = "it gets only the rows that come from now on; those before are in the former place"
        else:
            verdict, part = "forbidden", f"the sink, {key}"
            why = "it lacks all that was written before, and gets only what comes from now on"
        yield PlanDifference(
            verdict=verdict,
            about=f"sink {key}",
            part=part,
            before=text_of(old.get(key)),
            now=text_of(new.get(key)),
            why=why,
            functions=functions,
        )


def _compare_modes(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    if before.mode == now.mode:
        return
    verdict: Kind = "rebuild" if before.operators or now.operators else "safe"
    why = "the rows that are there were given by another rule: what is left out of each mode is missing, or stays"
    if verdict == "safe":
        why = "a query without a state gives the same rows in both"
    yield PlanDifference(
        verdict=verdict, part="the output mode", before=before.mode, now=now.mode, why=why, about="mode"
    )


def compare_settings(before: QueryForm, settings: Mapping[str, str]) -> Iterator[PlanDifference]:
    """Yield the settings of a session by which the same expressions mean something else than before."""
    for name in sorted({*before.settings} & {*settings}):
        old, new = before.settings[name], settings[name]
        if old != new and not (name == TIME_ZONE and is_same_clock(old, new)):
            yield PlanDifference(
                verdict=verdict_on_mixing(before),
                about=f"setting {name}",
                part=f"the setting {name}",
                before=old,
                now=new,
                why="the same expressions mean something else from now on",
                fix=f'set it as it was: spark.conf.set("{name}", "{old}"), or in `spark` of the target',
            )
