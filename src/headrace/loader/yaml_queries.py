"""The sources, sinks, queries, views and tables of headrace.yml, each with its settings and lines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace import registry
from headrace.contract import OUTPUT_MODES
from headrace.declare.assembly import COMMON_KEYS
from headrace.declare.change_data import CDC_KEYS, DELETE_WHEN_FIX, condition, read_change_data
from headrace.declare.declarations import DeclaredSettings, DeclaredSink, DeclaredSource, restart_policy
from headrace.declare.decorators import TIMED, parse_trigger
from headrace.declare.faults import display_path
from headrace.declare.variables import NoText, read_text
from headrace.errors import PlatformError, Where, nearest
from headrace.loader.document import DocumentEntry, DocumentReading
from headrace.model import Default, Duration, Trigger, Watermark
from headrace.model.change_data import ChangeData
from headrace.model.project import ON_CHANGE
from headrace.model.trigger import NEVER, RESTART_KEYS, Restart
from headrace.units import parse_size

SQL_KEYS = ("sql", "select", "description")
TABLE_KEYS = (*SQL_KEYS, "refresh")
QUERY_KEYS = (*SQL_KEYS, "sink", *COMMON_KEYS["sink"], "cdc")
# Keys that other tools have for a query, and where that stands here.
_ELSEWHERE = {
    **dict.fromkeys(("source", "sources"), "name the source in the SELECT: FROM its_name"),
    **dict.fromkeys(("input", "from"), "name the input in the SELECT: FROM its_name"),
    "inputs": "name the inputs in the SELECT: FROM its_name",
    "query": "write it as select: the text, or sql: a file",
    **dict.fromkeys(("schedule", "interval"), "write trigger: {every: 5 minutes}"),
    **dict.fromkeys(("checkpoint", "checkpointLocation"), "leave it out: checkpoints are below storage"),
    "output": "write it as sink",
    "watermark": "write it below the source: watermark: {column: time, delay: 2 hours}",
}
# What stands next to the kind of a source.
SOURCE_KEYS = COMMON_KEYS["source"]
WATERMARK_KEYS = ("column", "delay")
_EXAMPLE = "files: {path: ..., format: json, schema: ...}"


@dataclass(frozen=True, kw_only=True)
class Select:
    """A SELECT as written: the text and the file and line at which it begins; `kind` is table, view or query.

    refresh: how often a table is recomputed.
    """

    kind: str
    name: str
    text: str
    text_where: Where
    where: Where
    refresh: Duration | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenQuery(DeclaredSettings):
    """A query as written: its SELECT, if that could be read, and the rest."""

    select: Select | None


def selects(top: dict[str, DocumentEntry], reading: DocumentReading, root: Path) -> list[Select]:
    """The sections `tables` and `views`; what is wrong goes to `reading`."""
    written = [
        _select(kind, name, entry, reading, root, keys)
        for section, kind, keys in (("tables", "table", TABLE_KEYS), ("views", "view", SQL_KEYS))
        for name, entry in reading.mapping(top.get(section), section, example='name: "SELECT ..."').items()
    ]
    return [select for select in written if select is not None]


def queries(entry: DocumentEntry | None, reading: DocumentReading, root: Path) -> list[WrittenQuery]:
    """The section `queries`; what is wrong goes to `reading`."""
    entries = reading.mapping(entry, "queries", example='name: {select: "SELECT ...", sink: ...}')
    return [_query(name, query, reading, root) for name, query in entries.items()]


def _query(name: str, entry: DocumentEntry, reading: DocumentReading, root: Path) -> WrittenQuery:
    whose = f"query '{name}'"
    select = _select("query", name, entry, reading, root, QUERY_KEYS)
    keys = entry.value if isinstance(entry.value, dict) else {}
    changes = _change_data(whose, keys, reading)
    mode = reading.choose(keys.get("mode"), f"{whose}, mode,", OUTPUT_MODES, f"{whose} has no output mode")
    written_sink = sink(whose, entry, keys.get("sink"), reading)
    return WrittenQuery(
        name=name,
        select=select,
        # Without its options it would be a query of rows.
        sink=None if "cdc" in keys and changes is None else written_sink,
        late=_late(whose, entry, keys.get("late"), reading),
        mode=mode if changes is None else "update",
        cdc=changes,
        trigger=_trigger(whose, keys.get("trigger"), reading),
        description=" ".join((reading.text(keys.get("description"), f"{whose}, description,") or "").split()),
        on_change=reading.choose(keys.get("on_change"), f"{whose}, on_change,", ON_CHANGE, f"{whose} has no on_change"),
        renamed_from=former_names(whose, keys.get("renamed_from"), reading),
        restart=_restart(whose, keys.get("restart"), reading),
        delete_when=reading.parse(keys.get("delete_when"), f"{whose}, delete_when", condition, DELETE_WHEN_FIX),
        state_budget_bytes=reading.parse(
            keys.get("state_budget"), f"{whose}, state_budget", parse_size, "write for example state_budget: 2g"
        ),
        where=entry.where,
    )


def _change_data(whose: str, keys: dict[str, DocumentEntry], reading: DocumentReading) -> ChangeData | None:
    entry = keys.get("cdc")
    if entry is None:
        return None
    for other in ("mode", "late", "state_budget", "delete_when"):
        if other in keys:
            fix = f"leave {other} out: changes are applied in update mode, and none is late or keeps state"
            reading.fault("HR104", f"{whose} has cdc and {other}", fix, keys[other].where)
    options = reading.mapping(entry, f"{whose}, cdc,", CDC_KEYS, example="keys: [id]")
    if entry.value is not None and not isinstance(entry.value, dict):
        return None
    expand, findings = reading.variables.expand, reading.findings
    values = {name: expand(value.plain(), value.where, findings) for name, value in options.items()}
    lines = {name: value.where for name, value in options.items()}
    return read_change_data(values, whose, entry.where, reading.fault, lines)


def _select(
    kind: str, name: str, entry: DocumentEntry, reading: DocumentReading, root: Path, keys: Collection[str]
) -> Select | None:
    whose = f"{kind} '{name}'"
    if isinstance(entry.value, str):
        key = "sql" if entry.value.strip().endswith(".sql") else "select"
        entries = {key: entry}
    else:
        there = {}
        if isinstance(entry.value, dict):
            there = {**options_of_sink(entry.value.get("sink")), **_ELSEWHERE} if kind == "query" else {}
            # What follows a comma inside of braces is the next key to YAML.
            cut = [key for key, value in entry.value.items() if value.value is None and " " in key]
            there |= dict.fromkeys(cut, "put the SELECT in quotes: inside of braces a comma ends it")
        entries = reading.mapping(entry, whose, keys, elsewhere=there)
    if not isinstance(entry.value, (str, dict, type(None))):
        return None
    if ("sql" in entries) == ("select" in entries):
        problem = "has both sql and select" if "sql" in entries else "has no SELECT"
        reading.fault("HR112", f"{whose} {problem}", "give sql: a file, or select: the text", entry.where)
        return None
    if "select" in entries:
        text, where = reading.text(entries["select"], f"{whose}, select,"), entries["select"].where
        if text is not None and text.strip().endswith(".sql") and " " not in text.strip():
            fix = f"write sql: {text.strip()}"
            reading.fault("HR116", f"{whose}: select is the name of a file, and takes the text", fix, where)
            return None
    elif (path := reading.text(entries["sql"], f"{whose}, sql,")) is None:
        return None
    else:
        where = Where(file=display_path(root / path), line=1)
        try:
            text = read_text(root / path)
        except NoText as error:
            fix = "write the SELECT under select:" if " " in path else f"paths are relative to {display_path(root)}"
            if (root / path).is_file():
                fix = "make it a readable UTF-8 text file"
            reading.fault("HR115", f"{whose}: the file '{path}' cannot be read: {error}", fix, entries["sql"].where)
            return None
    if text is None:
        return None
    refresh = _refresh(whose, entry, reading) if kind == "table" else None
    return Select(kind=kind, name=name, text=text, text_where=where, where=entry.where, refresh=refresh)


def _refresh(whose: str, entry: DocumentEntry, reading: DocumentReading) -> Duration | None:
    refresh = entry.value.get("refresh") if isinstance(entry.value, dict) else None
    if refresh is None:
        return None
    if isinstance(refresh.value, dict):
        refresh = reading.mapping(refresh, f"{whose}, refresh,", ("every",)).get("every")
    return reading.parse(refresh, f"{whose}, refresh", Duration.parse, "write for example refresh: 10 minutes")


def _restart(whose: str, entry: DocumentEntry | None, reading: DocumentReading) -> Restart | None:
    if entry is None or entry.value is None:
        return None
    given: Any = entry.plain()
    if isinstance(entry.value, dict):
        keys = reading.mapping(entry, f"{whose}, restart,", RESTART_KEYS)
        texts = {key: reading.text(value, f"{whose}, restart, {key},") for key, value in keys.items()}
        given = {key: text for key, text in texts.items() if text is not None}
    elif not isinstance(entry.value, list):
        given = reading.text(entry, f"{whose}, restart,") or NEVER
    return restart_policy(given, whose, entry.where, reading.fault)


def _trigger(whose: str, entry: DocumentEntry | None, reading: DocumentReading) -> Trigger:
    if entry is None:
        return Default()
    word, where = "", entry.where
    fix = "write {every: 5 seconds}, {continuous: 1 second}, {real_time: 5 minutes}, default or available-now"
    if isinstance(entry.value, dict):
        entries = reading.mapping(entry, f"{whose}, trigger,", tuple(TIMED))
        given = [key for key in TIMED if key in entries]
        if len(given) != 1 or entries[given[0]].value is None:
            named = " and ".join(given) if len(given) > 1 else "nothing" if not given else f"{given[0]} without a time"
            if given or not entry.value:
                reading.fault("HR104", f"{whose}, trigger, says {named}", fix, where)
            return Default()
        word, entry = f"{given[0]} ", entries[given[0]]
    if isinstance(entry.value, list):
        reading.fault("HR104", f"{whose}, trigger, is a list", fix, where)
        return Default()
    return reading.parse(entry, f"{whose}, trigger", lambda text: parse_trigger(word + text), fix) or Default()


def sources(entry: DocumentEntry | None, reading: DocumentReading) -> dict[str, DeclaredSource]:
    """The section `sources`; what is wrong goes to `reading`."""
    entries = reading.mapping(entry, "sources", example=f"name: {{{_EXAMPLE}}}")
    read = {name: _source(name, source, reading) for name, source in entries.items()}
    return {name: source for name, source in read.items() if source is not None}


def _source(name: str, entry: DocumentEntry, reading: DocumentReading) -> DeclaredSource | None:
    whose = f"source '{name}'"
    keys = reading.mapping(entry, whose, example=_EXAMPLE)
    watermark = keys.get("watermark")
    kind = _kind("source", whose, {key: keys[key] for key in keys if key not in SOURCE_KEYS}, entry, reading)
    if kind is None:
        return None
    return DeclaredSource(
        kind=kind,
        **_options(keys[kind], f"{whose}, {kind},", reading),
        watermark=_watermark(whose, watermark, reading) if watermark else None,
        renamed_from=former_names(whose, keys.get("renamed_from"), reading),
        where=entry.where,
    )


def sink(
    whose: str, query: DocumentEntry, entry: DocumentEntry | None, reading: DocumentReading
) -> DeclaredSink | None:
    """The sink of a query, or None when it has faults."""
    if entry is None:
        if isinstance(query.value, (dict, str, type(None))):
            reading.fault("HR112", f"{whose} has no sink", "add for example sink: console", query.where)
        return None
    if isinstance(entry.value, str):
        return DeclaredSink(kind=entry.value, where=entry.where)
    keys = reading.mapping(entry, f"{whose}, sink,", example="sqlite: {path: ..., table: ...}")
    kind = _kind("sink", f"the sink of {whose}", keys, entry, reading)
    if kind is None:
        return None
    options = _options(keys[kind], f"{whose}, sink, {kind},", reading)
    return DeclaredSink(kind=kind, **options, where=keys[kind].where)


def _late(
    whose: str, query: DocumentEntry, entry: DocumentEntry | None, reading: DocumentReading
) -> DeclaredSink | None:
    """The sink of late rows, which must take each exactly once."""
    if entry is not None and not entry.value:
        fix = "name a sink that takes each row exactly once, as late: {sqlite: {path: late.db, table: late_rows}}"
        reading.fault("HR112", f"{whose}, late, names no sink", fix, entry.where)
        return None
    return None if entry is None else sink(f"{whose}, late", query, entry, reading)


def former_names(whose: str, entry: DocumentEntry | None, reading: DocumentReading) -> tuple[str, ...]:
    """The names that a source or a query had before."""
    return tuple(name for name, _ in reading.many(entry, f"{whose}, renamed_from,"))


def _kind(
    group: registry.ConnectorKind,
    whose: str,
    keys: dict[str, DocumentEntry],
    entry: DocumentEntry,
    reading: DocumentReading,
) -> str | None:
    """The one key that names the kind; others are misspelt or too many."""
    kinds_here = registry.list_names(group)
    also = (*kinds_here, *SOURCE_KEYS) if group == "source" else kinds_here
    if keys and not any(key in kinds_here for key in keys) and (fix := _meant_kind(group, keys)):
        reading.fault("HR112", f"{whose} says no kind above its options", fix, entry.where)
        return None
    if not keys:
        if isinstance(entry.value, dict) or entry.value is None:
            fix = f"write one of {', '.join(kinds_here)} below it, with its options"
            reading.fault("HR112", f"{whose} says no kind", fix, entry.where)
        return None
    kinds = [key for key in keys if key in kinds_here] or list(keys)
    for key in keys:
        if key != kinds[0]:
            reading.misplaced.append(keys[key].where)
            inside = {name: f"write it inside: {kinds[0]}: {{{name}: ...}}" for name in _option_names(group, kinds[0])}
            fix = f"a {group} has one kind" if key in kinds_here else nearest(key, also, elsewhere=inside)
            reading.fault("HR103", f"{whose} has no key '{key}' next to '{kinds[0]}'", fix, keys[key].where)
    return kinds[0]


def _meant_kind(group: registry.ConnectorKind, keys: dict[str, DocumentEntry]) -> str:
    """How to write a source or sink whose options stand without its kind above them; empty if it is another mistake."""
    for word in ("type", "kind", "connector", "format", "name"):
        value = keys[word].value if word in keys else None
        if isinstance(value, str) and value in registry.list_names(group):
            rest = ", ".join(f"{key}: ..." for key in keys if key != word)
            return f"write {value}: {{{rest}}}"
    options = {kind: _option_names(group, kind) for kind in registry.list_names(group)}
    fits = [kind for kind, names in options.items() if set(keys) <= set(names)]
    if not fits or (len(keys) == 1 and len(fits) > 2):
        return ""
    kind = "files" if "files" in fits else fits[0]
    return f"write {kind}: {{{', '.join(f'{key}: ...' for key in keys)}}}, or another kind"


def _option_names(group: registry.ConnectorKind, kind: str) -> tuple[str, ...]:
    try:
        return registry.option_names(group, kind) if kind in registry.list_names(group) else ()
    except PlatformError:
        return ()


def options_of_sink(entry: DocumentEntry | None) -> dict[str, str]:
    """The options of the sink that is declared there, each with how to write it inside of the sink."""
    value = entry.value if entry is not None else None
    kinds = [value] if isinstance(value, str) else list(value) if isinstance(value, dict) else []
    names = [(kind, name) for kind in kinds for name in _option_names("sink", kind)]
    return {name: f"write it inside of the sink: {{{kind}: {{{name}: ...}}}}" for kind, name in names}


def _options(entry: DocumentEntry, label: str, reading: DocumentReading) -> dict[str, Any]:
    """Raw options and their lines; or as `arguments` one value in their place, the connector's first option."""
    if not isinstance(entry.value, (dict, list, type(None))):
        return {"arguments": (entry.value,)}
    keys = reading.mapping(entry, label, example="option: value")
    return {
        "options": {key: value.plain() for key, value in keys.items()},
        "lines": {key: value.where for key, value in keys.items()},
    }


def _watermark(whose: str, entry: DocumentEntry, reading: DocumentReading) -> Watermark | None:
    fix = "write watermark: {column: time, delay: 2 hours}"
    if isinstance(entry.value, list) and len(entry.value) == 2:
        keys = dict(zip(WATERMARK_KEYS, entry.value, strict=True))
    elif not isinstance(entry.value, dict):
        reading.fault("HR104", f"the watermark of {whose} is not a pair of a column and a delay", fix, entry.where)
        return None
    else:
        keys = reading.mapping(entry, f"{whose}, watermark,", WATERMARK_KEYS)
    for key in WATERMARK_KEYS:
        if key not in keys or keys[key].value is None:
            reading.fault("HR112", f"the watermark of {whose} lacks '{key}'", fix, entry.where)
    column = reading.text(keys.get("column"), f"{whose}, watermark, column,")
    delay = reading.parse(keys.get("delay"), f"{whose}, watermark, delay", Duration.parse, "write for example 2 hours")
    return None if column is None or delay is None else Watermark(column=column, delay=delay)
